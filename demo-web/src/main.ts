// The frame of the app: the database, the pages, and what the pages share.
import { BenchPage } from './bench/page.ts';
import { CityStore } from './cities.ts';
import { element } from './dom.ts';
import { ExplorePage } from './explore/page.ts';
import { InspectPage } from './inspect/page.ts';
import { Router } from './router.ts';
import { showProblem } from './shell/problem.ts';
import { startPwa } from './shell/pwa.ts';
import { ReplicationPage } from './replication/page.ts';

const parameters = new URLSearchParams(location.search);
const databaseName = parameters.get('db') ?? 'world-cities';
const lockTimeout = Number(parameters.get('lockTimeout') ?? 10_000);

let opened: Promise<CityStore> | undefined;

/** Opens the database once for all pages; after a failure, the next call tries again. */
function open(): Promise<CityStore> {
  opened ??= CityStore.open(databaseName, lockTimeout).then(
    (store) => {
      const badge = document.querySelector<HTMLElement>('[data-testid="persistence"]')!;
      badge.textContent = `${databaseName} · ${store.database.persistence}`;
      badge.hidden = false;
      return store;
    },
    (error: unknown) => {
      opened = undefined;
      throw error;
    },
  );
  return opened;
}

async function guard(run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    showProblem(error, () => void guard(run));
  }
}

const explore = new ExplorePage(databaseName, open, guard);
const pages = [explore, new InspectPage(open), new BenchPage(open, guard), new ReplicationPage(parameters)] as const;
const router = new Router([...pages], showProblem);

const help = element<HTMLDialogElement>('help');
element('help-button').addEventListener('click', () => help.showModal());
document.addEventListener('keydown', (event) => {
  const [target] = event.composedPath();
  const isTyping =
    target instanceof HTMLInputElement ||
    target instanceof HTMLSelectElement ||
    document.querySelector('dialog[open]') !== null;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const number = Number(event.key);
  const page = Number.isInteger(number) ? pages[number - 1] : undefined;
  const own = router.active === 'explore' ? explore.actionOf(event.key) : undefined;
  const action = event.key === '?' ? () => help.showModal() : page === undefined ? own : () => router.goTo(page.id);
  if (action === undefined) return;
  event.preventDefault();
  action();
});

router.start();
if (router.active === 'explore') explore.drawFirst();
startPwa();
