// The page for browsing, searching and changing the cities.
import { persist } from 'mangrove-kv';
import type { Commit } from 'mangrove-kv';
import { ALL, indexOf } from '../cities.ts';
import type { City, CityId, CityStore, Entry, Filter } from '../cities.ts';
import { debounce, element, formatCount, formatTime } from '../dom.ts';
import type { Page } from '../router.ts';
import { say } from '../shell/toast.ts';
import { openEditor, prepareEditor } from './editor.ts';
import { keepRows, keptRows } from './first-rows.ts';
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

const progressText = (): HTMLElement => element('importing').querySelector('.numbers') as HTMLElement;

export class ExplorePage implements Page {
  readonly id = 'explore';
  readonly title = 'Explore';
  readonly #database: string;
  readonly #guard: Guard;
  readonly #open: () => Promise<CityStore>;
  readonly #list: VirtualList<Entry>;
  readonly #fresh = new Set<CityId>();
  readonly #refreshStats = debounce(150, () => void this.#guard(() => showStats(this.#store)));
  readonly #refreshList = debounce(30, () => void this.#guard(() => this.#showList(true)));
  #undo: UndoList | undefined;
  #opened: CityStore | undefined;
  #filter: Filter = ALL;
  #total = 0;
  /** Number of this tab's commits whose notifications have not arrived yet. */
  #own = 0;

  /** `database` is its name. */
  constructor(database: string, open: () => Promise<CityStore>, guard: Guard) {
    this.#database = database;
    this.#open = open;
    this.#guard = guard;
    const root = element('explore');
    root.innerHTML = `<h1 class="unseen" id="explore-title">Explore the cities</h1>${markup}`;
    prepareEditor();
    this.#list = new VirtualList<Entry>(element('list'), {
      cells: ({ city }) => [
        city.name,
        city.country,
        city.population === undefined ? '' : formatCount(city.population),
        `${city.lat.toFixed(3)}, ${city.lng.toFixed(3)}`,
      ],
      onOpen: (entry) => this.#edit(entry),
      onDelete: (entry) => void this.#guard(() => this.#remove(entry)),
      isFresh: ({ id }) => this.#fresh.has(id),
    });
    this.#listen();
  }

  /** Draws what the page showed when it was left, before anything else is. */
  drawFirst(): void {
    const rows = keptRows(this.#database);
    if (rows === undefined) return;
    this.#display('browser', 'side');
    this.#showHits(rows.total, ALL);
    const now = (offset: number, limit: number): Entry[] | undefined =>
      offset < rows.offset ? undefined : rows.entries.slice(offset - rows.offset, offset - rows.offset + limit);
    // Others follow when the database is open.
    this.#list.showAt({ total: rows.total, now, fetch: () => new Promise(() => undefined) }, rows.offset);
  }

  #keepFirst(): void {
    const { by } = this.#filter;
    const isAll = by === 'name' && this.#filter.text === '' && this.#filter.country === '';
    const { offset, items } = this.#list.visible;
    const isShown = isAll && this.#opened !== undefined && !element('browser').hidden;
    keepRows(this.#database, isShown ? { total: this.#total, offset, entries: items } : undefined);
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
    await store.buildIndexes((index, done, total) => this.#showProgress(`Building the index ${index}`, done, total));
    const total = await store.count(ALL);
    if (await store.isImported()) await this.#browse();
    else this.#display('welcome');
    if (total > 0) element('welcome-title').textContent = `An import stopped after ${formatCount(total)} cities`;
  }

  /** Returns the action of a key on this page, if any. */
  actionOf(key: string): (() => void) | undefined {
    if (element('browser').hidden) return undefined;
    const actions: Readonly<Record<string, () => void>> = {
      '/': () => element(this.#filter.by === 'name' ? 'search' : 'least').focus(),
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
    addEventListener('pagehide', () => this.#keepFirst());
    const [order, country] = [element<HTMLSelectElement>('order'), element<HTMLInputElement>('country')];
    const jump = element<HTMLInputElement>('jump');
    const changed = debounce(60, () => void this.#guard(() => this.#showList()));
    order.addEventListener('change', () => void this.#guard(() => this.#orderBy(order.value)));
    for (const id of ['search', 'least']) element(id).addEventListener('input', changed);
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

  #showProgress(title: string, done: number, total: number, rate = ''): void {
    this.#display('importing');
    element('importing-title').textContent = title;
    element<HTMLProgressElement>('import-bar').value = total === 0 ? 0 : done / total;
    progressText().textContent = `${formatCount(done)} of ${formatCount(total)}${rate}`;
  }

  #display(...visible: string[]): void {
    for (const id of ['welcome', 'importing', 'browser', 'side']) element(id).hidden = !visible.includes(id);
  }

  async #browse(): Promise<void> {
    await this.#store.mirrorFirst();
    // Counts before showing the list: an empty list would look like data loss. Rows that are drawn already stay.
    await this.#showList(!element('browser').hidden);
    this.#display('browser', 'side');
  }

  async #showList(keepPlace = false): Promise<void> {
    const shown = this.#filterOfFields();
    this.#filter = shown;
    const store = this.#store;
    const total = await timed('last search', () => store.count(shown));
    if (shown !== this.#filter) return;
    this.#total = total;
    this.#showHits(total, shown);
    const now = (offset: number, limit: number): Entry[] | undefined => store.pageNow(shown, offset, limit);
    const fetch = (offset: number, limit: number): Promise<Entry[]> =>
      timed('last page', () => store.page(shown, offset, limit)).finally(this.#refreshStats);
    this.#list.show({ total, fetch, now }, keepPlace);
    this.#refreshStats();
  }

  #showHits(total: number, shown: Filter): void {
    element('browser').querySelector('[data-testid="hits"]')!.textContent = formatCount(total);
    const isCountryMissing = shown.by === 'population' && shown.country.length < 2;
    const what = total === 1 ? 'city' : 'cities';
    element('hits-label').textContent = isCountryMissing ? `${what}: type the two letters of a country` : what;
    element('hits-index').textContent = indexOf(shown);
  }

  #filterOfFields(): Filter {
    const field = (id: string): HTMLInputElement => element<HTMLInputElement>(id);
    const country = field('country').value.toUpperCase();
    if (element<HTMLSelectElement>('order').value === 'name')
      return { by: 'name', text: field('search').value, country };
    const least = field('least').valueAsNumber;
    return { by: 'population', country, least: Number.isNaN(least) ? 0 : least };
  }

  /** Changes the order, and the fields to those by which it can be searched. */
  async #orderBy(order: string): Promise<void> {
    const isByName = order === 'name';
    element('search-label').hidden = !isByName;
    element('least-label').hidden = isByName;
    const country = element<HTMLInputElement>('country');
    country.placeholder = isByName ? 'all' : 'EC';
    element<HTMLInputElement>('jump').placeholder = isByName ? 'name, row' : 'row';
    // The index by population begins with the country.
    if (!isByName && country.value.length < 2) country.value = this.#list.current?.city.country ?? '';
    await this.#showList();
  }

  /** Handles commits of this tab and of others. */
  #onCommit({ changes }: Commit<CityId, City>): void {
    if (element('browser').hidden) return;
    if (this.#own > 0) this.#own--;
    else element('explore').querySelector('[data-testid="live"]')!.textContent = 'changed in another tab just now';
    for (const change of changes) {
      if (change.type !== 'set') continue;
      const id = change.key;
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
    element('import-cancel').hidden = false;
    const onProgress = ({ done, total, elapsed }: ImportProgress): void => {
      this.#showProgress(
        'Importing',
        done,
        total,
        elapsed > 0 ? ` · ${formatCount((done / elapsed) * 1000)} per second` : '',
      );
    };
    progressText().textContent = 'Loading the data set';
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

  async #change(label: string, ids: readonly CityId[], change: () => Promise<readonly CityId[]>): Promise<void> {
    this.#own++;
    try {
      await timed('last write', async () => this.#undo?.run(label, ids, change));
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

  #replace(id: CityId, city: City): Promise<void> {
    return this.#change(`${city.name} was changed`, [id], async () => {
      await this.#store.replace(id, city);
      return [];
    });
  }

  #remove({ id, city }: Entry): Promise<void> {
    return this.#change(`${city.name} was deleted`, [id], async () => {
      await this.#store.delete(id);
      return [];
    });
  }

  #edit(entry: Entry): void {
    openEditor(entry.city, { save: (city) => this.#replace(entry.id, city), delete: () => this.#remove(entry) });
  }

  #add(): void {
    openEditor(undefined, {
      save: (city) => this.#change(`${city.name} was added`, [], async () => [await this.#store.add(city)]),
    });
  }

  async #goTo(text: string): Promise<void> {
    const position = Number(text.replaceAll(',', ''));
    const isPosition = text !== '' && Number.isInteger(position);
    const [store, filter] = [this.#store, this.#filter];
    if (isPosition) this.#list.goTo(position - 1);
    else if (filter.by === 'name') this.#list.goTo(await timed('last jump', () => store.rank(filter, text)));
    else say('By population, the list jumps to the number of a row.');
    this.#refreshStats();
  }
}
