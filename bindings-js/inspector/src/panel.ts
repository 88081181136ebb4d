// The inspector as a whole. Reads figures and layout, and shows them in the open view.
import { CollectionList, sizeOf } from './collection-list.ts';
import { button, h, setText } from './dom.ts';
import { EntriesView } from './entries-view.ts';
import { FiguresView } from './figures-view.ts';
import { FileView } from './file-view.ts';
import { formatBytes, formatCount, messageOf, plural } from './format.ts';
import { Source } from './source.ts';
import type { InspectedCollection, InspectedDatabase } from './source.ts';
import { STYLE } from './style.ts';
import { Tabs } from './tabs.ts';
import { TreeView } from './tree-view.ts';
import { MaintenanceView } from './maintenance-view.ts';
import type { Context, View } from './view.ts';

export interface PanelOptions {
  readonly collections: readonly InspectedCollection[];
  readonly refreshMs: number;
  readonly onRestored: ((name: string) => void) | undefined;
}

export class Panel implements Context {
  readonly source: Source;
  readonly signal: AbortSignal;
  chosen = '';
  readonly #head = h('p', { class: 'head' });
  readonly #problem = h('p', { class: 'problem', role: 'alert' });
  readonly #status = h('p', { class: 'unseen', role: 'status' });
  readonly #sidebar: HTMLElement;
  readonly #collections: CollectionList;
  readonly #tabs: Tabs<View>;
  readonly #byCollection: ReadonlySet<View>;
  #hasChosen = false;
  #version = -1;
  #isReading = false;
  /** The view and collection drawn last. They are redrawn only if something changed. */
  #shown: { readonly view: View; readonly chosen: string } | undefined;

  constructor(root: ShadowRoot, database: InspectedDatabase, options: PanelOptions, signal: AbortSignal) {
    this.signal = signal;
    this.source = new Source(database, options.collections);
    this.#collections = new CollectionList(this, () => void this.refresh(false));
    const [entries, tree] = [new EntriesView(this), new TreeView(this)];
    this.#byCollection = new Set<View>([entries, tree]);
    const views = [entries, tree, new FileView(this), new FiguresView(), new MaintenanceView(this, options)] as const;
    this.#tabs = new Tabs<View>('Inspector', [...views], () => void this.refresh(false));
    this.#sidebar = h(
      'nav',
      { class: 'sidebar', 'aria-label': 'Collections' },
      h('p', { class: 'soft', 'aria-hidden': 'true' }, 'Collections'),
      this.#collections.element,
    );
    const again = button('Refresh', () => void this.refresh(true), { class: 'quiet' });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    root.append(
      h(
        'div',
        { class: 'inspector' },
        h('div', { class: 'top' }, this.#head, again),
        this.#tabs.bar,
        this.#problem,
        h('div', { class: 'main' }, this.#sidebar, this.#tabs.panels),
        this.#status,
      ),
    );
    void this.refresh(false);
    const timer = setInterval(() => {
      const { host } = root;
      // Does not refresh while hidden.
      if (document.visibilityState === 'visible' && host.isConnected && (host as HTMLElement).offsetParent !== null)
        void this.refresh(false);
    }, options.refreshMs);
    signal.addEventListener('abort', () => clearInterval(timer));
  }

  async refresh(withLayout: boolean): Promise<void> {
    if (this.#isReading || this.signal.aborted) return;
    this.#isReading = true;
    const view = this.#tabs.active;
    try {
      const stats = await this.source.stats();
      const isChanged = stats.version !== this.#version;
      const layout = await this.source.layout(
        withLayout || (isChanged && (this.source.isLayoutCheap || this.#version < 0)),
      );
      if (this.signal.aborted) return;
      this.#version = stats.version;
      if (!layout.collections.some(({ name }) => name === this.chosen)) this.chosen = layout.collections[0]?.name ?? '';
      if (!this.#hasChosen && layout.collections.length > 0) {
        this.#hasChosen = true;
        // Starts with the largest collection.
        this.chosen = layout.collections.reduce((most, one) => (sizeOf(one) > sizeOf(most) ? one : most)).name;
      }
      this.#collections.show(layout.collections, stats.indexes);
      this.#sidebar.hidden = !this.#byCollection.has(view);
      const { path, persistence } = this.source.database;
      setText(
        this.#head,
        `${path} · ${persistence} · ${plural(stats.entries, 'entry', 'entries')} · ${formatBytes(stats.fileSize)} · commit ${formatCount(stats.version)}`,
      );
      const isSame = this.#shown?.view === view && this.#shown.chosen === this.chosen;
      if (isChanged || withLayout || !isSame || view.isLive) await view.show(stats, layout);
      this.#shown = { view, chosen: this.chosen };
      setText(this.#problem, '');
    } catch (error) {
      this.fail(error);
    } finally {
      this.#isReading = false;
    }
    // Another tab was opened meanwhile.
    if (view !== this.#tabs.active) await this.refresh(false);
  }

  fail(error: unknown): void {
    if (!this.signal.aborted) setText(this.#problem, messageOf(error));
  }

  announce(text: string): void {
    setText(this.#status, text);
  }
}
