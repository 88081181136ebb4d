import { persist } from 'mangrove-kv';
import { CityStore } from './cities.ts';
import type { City, CityKey, Entry, Filter } from './cities.ts';
import { debounce, element, formatCount, formatTime } from './dom.ts';
import { openEditor } from './editor.ts';
import { importCities } from './import.ts';
import type { ImportProgress } from './import.ts';
import { VirtualList } from './list.ts';
import { measure, measurementRow } from './measure.ts';
import { showProblem } from './problem.ts';
import { setRawBytes, setTime, showStats, timed } from './stats.ts';

const parameters = new URLSearchParams(location.search);
const databaseName = parameters.get('db') ?? 'world-cities';
const lockTimeout = Number(parameters.get('lockTimeout') ?? 10_000);

const search = element<HTMLInputElement>('search');
const country = element<HTMLInputElement>('country');
const jump = element<HTMLInputElement>('jump');
const toast = element('toast');

let store: CityStore;
let filter: Filter = { text: '', country: '' };

const list = new VirtualList<Entry>(element('list'), {
  cells: ({ city }) => [city.name, city.country, `${city.lat.toFixed(3)}, ${city.lng.toFixed(3)}`],
  onOpen: edit,
  onDelete: (entry) => void guard(() => remove(entry)),
});

/** Errors of what a visitor starts are shown, not lost. */
async function guard(run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    showProblem(error, () => void guard(run));
  }
}

const refreshStats = debounce(150, () => void guard(() => showStats(store)));

function show(...visible: string[]): void {
  for (const id of ['welcome', 'importing', 'browser', 'side']) element(id).hidden = !visible.includes(id);
}

async function showList(keepPlace = false): Promise<void> {
  filter = { text: search.value, country: country.value.toUpperCase() };
  const shown = filter;
  const total = await timed('last search', () => store.count(shown));
  if (shown !== filter) return;
  element('browser').querySelector('[data-testid="hits"]')!.textContent = formatCount(total);
  element('hits-label').textContent = total === 1 ? 'city' : 'cities';
  list.show({ total, fetch: (offset, limit) => timed('last page', () => store.page(shown, offset, limit)).finally(refreshStats) }, keepPlace);
  refreshStats();
}

async function start(): Promise<void> {
  const begin = performance.now();
  store = await CityStore.open(databaseName, lockTimeout);
  const total = await store.count({ text: '', country: '' });
  setTime('open', performance.now() - begin);
  const badge = document.querySelector<HTMLElement>('[data-testid="persistence"]')!;
  badge.textContent = `${databaseName} · ${store.database.persistence}`;
  badge.hidden = false;
  if (await store.isImported()) await browse();
  else show('welcome');
  if (total > 0) element('welcome-title').textContent = `An import stopped after ${formatCount(total)} cities`;
}

async function browse(): Promise<void> {
  // Counted before it is shown: a list of no cities would look like a loss.
  await showList();
  show('browser', 'side');
}

async function runImport(): Promise<void> {
  show('importing');
  const abort = new AbortController();
  element('import-cancel').onclick = () => abort.abort();
  const bar = element<HTMLProgressElement>('import-bar');
  const text = element('importing').querySelector('.figures') as HTMLElement;
  const onProgress = ({ done, total, elapsed }: ImportProgress): void => {
    bar.value = done / total;
    const rate = elapsed > 0 ? ` · ${formatCount((done / elapsed) * 1000)} per second` : '';
    text.textContent = `${formatCount(done)} of ${formatCount(total)}${rate}`;
  };
  text.textContent = 'Loading the data set';
  try {
    const result = await importCities(store, onProgress, abort.signal);
    setRawBytes(result.rawBytes);
    setTime('import', result.elapsed);
    element('importing').dataset['rate'] = String(Math.round((result.done / result.elapsed) * 1000));
    say(`${formatCount(result.done)} cities in ${formatTime(result.elapsed)}, ${formatCount((result.done / result.elapsed) * 1000)} per second`);
    // Asked for once there is something to lose.
    void persist();
  } catch (error) {
    if (!abort.signal.aborted) throw error;
    // What was written so far is shown, and kept.
    await store.database.flush();
  }
  await browse();
}

let hideToast: ReturnType<typeof setTimeout> | undefined;

function say(text: string, undo?: () => Promise<void>): void {
  const button = toast.querySelector('button') as HTMLButtonElement;
  toast.querySelector('span')!.textContent = text;
  button.hidden = undo === undefined;
  button.onclick = () => {
    toast.hidden = true;
    if (undo !== undefined) void guard(undo);
  };
  toast.hidden = false;
  clearTimeout(hideToast);
  hideToast = setTimeout(() => { toast.hidden = true; }, 8000);
}

async function write(old: CityKey | undefined, city: City): Promise<void> {
  await timed('last write', () => store.replace(old, city));
  await showList(true);
}

async function remove({ key, city }: Entry): Promise<void> {
  await timed('last write', () => store.delete(key));
  await showList(true);
  say(`${city.name} was deleted`, async () => {
    await store.addMany([{ key, city }]);
    await showList(true);
  });
}

function edit(entry: Entry): void {
  openEditor(entry.city, { save: (city) => write(entry.key, city), delete: () => remove(entry) });
}

function add(): void {
  openEditor(undefined, { save: (city) => write(undefined, city) });
}

async function goTo(text: string): Promise<void> {
  const position = Number(text.replaceAll(',', ''));
  const isPosition = text !== '' && Number.isInteger(position);
  list.goTo(isPosition ? position - 1 : await timed('last jump', () => store.rank(filter, text)));
  refreshStats();
}

async function runMeasure(): Promise<void> {
  const button = element<HTMLButtonElement>('measure-button');
  const table = element<HTMLTableElement>('measure-table');
  const body = table.tBodies[0]!;
  body.replaceChildren();
  table.hidden = false;
  table.removeAttribute('data-done');
  button.disabled = true;
  try {
    await measure(store, (result) => body.append(measurementRow(result)));
    table.setAttribute('data-done', '');
  } finally {
    button.disabled = false;
  }
  refreshStats();
}

const filterChanged = debounce(60, () => void guard(() => showList()));
search.addEventListener('input', filterChanged);
country.addEventListener('input', () => {
  if (country.value.length !== 1) filterChanged();
});
element('tools').addEventListener('submit', (event) => event.preventDefault());
jump.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return;
  void guard(() => goTo(jump.value));
  element('list').focus();
});
element('add-button').addEventListener('click', add);
element('import-button').addEventListener('click', () => void guard(runImport));
element('measure-button').addEventListener('click', () => void guard(runMeasure));

const help = element<HTMLDialogElement>('help');
element('help-button').addEventListener('click', () => help.showModal());
document.addEventListener('keydown', (event) => {
  const isTyping = event.target instanceof HTMLInputElement || document.querySelector('dialog[open]') !== null;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const actions: Record<string, () => void> = {
    '?': () => help.showModal(),
    '/': () => search.focus(),
    g: () => jump.focus(),
    n: add,
  };
  const action = actions[event.key];
  if (action === undefined || (event.key !== '?' && element('browser').hidden)) return;
  event.preventDefault();
  action();
});

void guard(start);
