// The page for browsing, searching and changing the cities.
import { persist } from 'mangrove-kv';
import type { Commit } from 'mangrove-kv';
import type { City, CityKey, CityStore, Entry, Filter } from '../cities.ts';
import { debounce, element, formatCount, formatTime } from '../dom.ts';
import type { Page } from '../router.ts';
import { say } from '../shell/toast.ts';
import { openEditor, prepareEditor } from './editor.ts';
import { importCities } from './import.ts';
import type { ImportProgress } from './import.ts';
import { VirtualList } from './list.ts';
import markup from './page.html?raw';
import { setRawBytes, setTime, showStats, timed } from './stats.ts';
import { UndoList } from './undo.ts';

/** How long a changed city is highlighted. */
const FRESH_MS = 2500;

/** Runs an action of the visitor and shows its error, if any. */
export type Guard = (run: () => Promise<void>) => Promise<void>;

const idOf = (key: CityKey): string => JSON.stringify(key);

export class ExplorePage implements Page {
  readonly id = 'explore';
  readonly title = 'Explore';
  readonly #guard: Guard;
  readonly #open: () => Promise<CityStore>;
  readonly #list: VirtualList<Entry>;
  readonly #fresh = new Set<string>();
  readonly #refreshStats = debounce(150, () => void this.#guard(() => showStats(this.#store)));
  readonly #refreshList = debounce(30, () => void this.#guard(() => this.#showList(true)));
  #undo: UndoList | undefined;
  #opened: CityStore | undefined;
  #filter: Filter = { text: '', country: '' };
  /** Number of this tab's commits whose notifications have not arrived yet. */
  #own = 0;

  constructor(open: () => Promise<CityStore>, guard: Guard) {
    this.#open = open;
    this.#guard = guard;
    const root = element('explore');
    root.innerHTML = `<h1 class="unseen" id="explore-title">Explore the cities</h1>${markup}`;
    prepareEditor();
    this.#list = new VirtualList<Entry>(element('list'), {
      cells: ({ city }) => [city.name, city.country, `${city.lat.toFixed(3)}, ${city.lng.toFixed(3)}`],
      onOpen: (entry) => this.#edit(entry),
      onDelete: (entry) => void this.#guard(() => this.#remove(entry)),
      isFresh: ({ key }) => this.#fresh.has(idOf(key)),
    });
    this.#listen();
  }

  async show(): Promise<void> {
    if (this.#opened !== undefined) {
      this.#refreshStats();
      return;
    }
    const begin = performance.now();
    const store = await this.#open();
    setTime('open', performance.now() - begin);
    if (this.#opened !== undefined) return;
    this.#opened = store;
    this.#undo = new UndoList(store, () => {
      const button = element<HTMLButtonElement>('undo-button');
      button.disabled = this.#undo?.next === undefined;
      button.title = this.#undo?.next ?? '';
    });
    store.follow((commit) => this.#onCommit(commit));
    store.onImported(() => {
      // Handles imports of other tabs; this tab's own import continues by itself.
      if (element('browser').hidden && element('importing').hidden) void this.#guard(() => this.#browse());
    });
    const total = await store.count({ text: '', country: '' });
    if (await store.isImported()) await this.#browse();
    else this.#display('welcome');
    if (total > 0) element('welcome-title').textContent = `An import stopped after ${formatCount(total)} cities`;
  }

  /** Returns the action of a key on this page, if any. */
  actionOf(key: string): (() => void) | undefined {
    if (element('browser').hidden) return undefined;
    const actions: Readonly<Record<string, () => void>> = {
      '/': () => element('search').focus(),
      g: () => element('jump').focus(),
      n: () => this.#add(),
      u: () => void this.#guard(() => this.#undoLast()),
    };
    return actions[key];
  }

  get #store(): CityStore {
    if (this.#opened === undefined) throw new Error('the database is not open yet');
    return this.#opened;
  }

  #listen(): void {
    const country = element<HTMLInputElement>('country');
    const jump = element<HTMLInputElement>('jump');
    const changed = debounce(60, () => void this.#guard(() => this.#showList()));
    element('search').addEventListener('input', changed);
    country.addEventListener('input', () => {
      if (country.value.length !== 1) changed();
    });
    element('tools').addEventListener('submit', (event) => event.preventDefault());
    jump.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      void this.#guard(() => this.#goTo(jump.value));
      element('list').focus();
    });
    element('add-button').addEventListener('click', () => this.#add());
    element('undo-button').addEventListener('click', () => void this.#guard(() => this.#undoLast()));
    element('import-button').addEventListener('click', () => void this.#guard(() => this.#import()));
  }

  #display(...visible: string[]): void {
    for (const id of ['welcome', 'importing', 'browser', 'side']) element(id).hidden = !visible.includes(id);
  }

  async #browse(): Promise<void> {
    // Counts before showing the list: an empty list would look like data loss.
    await this.#showList();
    this.#display('browser', 'side');
  }

  async #showList(keepPlace = false): Promise<void> {
    const [search, country] = [element<HTMLInputElement>('search'), element<HTMLInputElement>('country')];
    this.#filter = { text: search.value, country: country.value.toUpperCase() };
    const shown = this.#filter;
    const store = this.#store;
    const total = await timed('last search', () => store.count(shown));
    if (shown !== this.#filter) return;
    element('browser').querySelector('[data-testid="hits"]')!.textContent = formatCount(total);
    element('hits-label').textContent = total === 1 ? 'city' : 'cities';
    const fetch = (offset: number, limit: number): Promise<Entry[]> =>
      timed('last page', () => store.page(shown, offset, limit)).finally(this.#refreshStats);
    this.#list.show({ total, fetch }, keepPlace);
    this.#refreshStats();
  }

  /** Handles commits of this tab and of others. */
  #onCommit({ changes }: Commit<CityKey, City>): void {
    if (element('browser').hidden) return;
    if (this.#own > 0) this.#own--;
    else element('explore').querySelector('[data-testid="live"]')!.textContent = 'changed in another tab just now';
    for (const change of changes) {
      if (change.type !== 'set') continue;
      const id = idOf(change.key);
      this.#fresh.add(id);
      setTimeout(() => {
        this.#fresh.delete(id);
        if (this.#fresh.size === 0) this.#list.redraw();
        element('explore').querySelector('[data-testid="live"]')!.textContent = '';
      }, FRESH_MS);
    }
    this.#refreshList();
  }

  async #import(): Promise<void> {
    this.#display('importing');
    const abort = new AbortController();
    element('import-cancel').onclick = () => abort.abort();
    const bar = element<HTMLProgressElement>('import-bar');
    const text = element('importing').querySelector('.numbers') as HTMLElement;
    const onProgress = ({ done, total, elapsed }: ImportProgress): void => {
      bar.value = done / total;
      const rate = elapsed > 0 ? ` · ${formatCount((done / elapsed) * 1000)} per second` : '';
      text.textContent = `${formatCount(done)} of ${formatCount(total)}${rate}`;
    };
    text.textContent = 'Loading the data set';
    try {
      const result = await importCities(this.#store, onProgress, abort.signal);
      setRawBytes(result.rawBytes);
      setTime('import', result.elapsed);
      const rate = (result.done / result.elapsed) * 1000;
      element('importing').dataset['rate'] = String(Math.round(rate));
      say(`${formatCount(result.done)} cities in ${formatTime(result.elapsed)}, ${formatCount(rate)} per second`);
      // Requests persistence once there is something to lose.
      void persist();
    } catch (error) {
      if (!abort.signal.aborted) throw error;
      // Keeps and shows what has been written so far.
      await this.#store.database.flush();
    }
    await this.#browse();
  }

  async #change(label: string, keys: readonly CityKey[], change: () => Promise<readonly CityKey[]>): Promise<void> {
    this.#own++;
    try {
      await timed('last write', async () => this.#undo?.run(label, keys, change));
    } catch (error) {
      this.#own--;
      throw error;
    }
    await this.#showList(true);
    say(label, () => void this.#guard(() => this.#undoLast()));
  }

  async #undoLast(): Promise<void> {
    this.#own++;
    let undone: string | undefined;
    try {
      undone = await this.#undo?.undo();
    } catch (error) {
      this.#own--;
      if ((error as { code?: unknown }).code !== 'KV_SNAPSHOT_LOST') throw error;
      say('This can no longer be undone: the tab that kept the earlier state is closed.');
      return;
    }
    if (undone === undefined) {
      this.#own--;
      return;
    }
    await this.#showList(true);
    say(`Undone: ${undone}`);
  }

  #write(old: CityKey | undefined, city: City): Promise<void> {
    const label = `${city.name} was ${old === undefined ? 'added' : 'changed'}`;
    return this.#change(label, old === undefined ? [] : [old], async () => [await this.#store.replace(old, city)]);
  }

  #remove({ key, city }: Entry): Promise<void> {
    return this.#change(`${city.name} was deleted`, [key], async () => {
      await this.#store.delete(key);
      return [];
    });
  }

  #edit(entry: Entry): void {
    openEditor(entry.city, { save: (city) => this.#write(entry.key, city), delete: () => this.#remove(entry) });
  }

  #add(): void {
    openEditor(undefined, { save: (city) => this.#write(undefined, city) });
  }

  async #goTo(text: string): Promise<void> {
    const position = Number(text.replaceAll(',', ''));
    const isPosition = text !== '' && Number.isInteger(position);
    const store = this.#store;
    this.#list.goTo(isPosition ? position - 1 : await timed('last jump', () => store.rank(this.#filter, text)));
    this.#refreshStats();
  }
}
