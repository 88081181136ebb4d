/**
 * An inspector for an open database, for any page: collections and entries, trees and file as
 * diagrams, statistics of log and cache, and maintenance. Needs no framework; its style stays in a
 * shadow root.
 *
 * @module @mangrove-kv/inspector
 */
import { Panel } from './panel.ts';
import type { InspectedCollection, InspectedDatabase } from './source.ts';

export type {
  InspectedCollection,
  InspectedDatabase,
  InspectedEntries,
  InspectedIndex,
  InspectedIndexEntry,
} from './source.ts';

// Derived from the environment, so that programs without the DOM types compile too.
type ElementType = typeof globalThis extends { HTMLElement: new (...args: never[]) => infer E } ? E : object;

/** Options of `mountInspector`. */
export interface InspectorOptions {
  /**
   * Handles of collections with custom codecs, opened with those indexes that are to be shown. The
   * others are opened with the codecs whose ids are stored with them, and their indexes as they are
   * stored.
   */
  collections?: readonly InspectedCollection[] | undefined;
  /**
   * Milliseconds between refreshes of the statistics while the inspector is visible. Its views are
   * also read again after commits, other tabs' included; a layout that is slow to compute only by
   * the Refresh button. Default: 1000.
   */
  refreshMs?: number | undefined;
  /** Called with the name of a database that was restored from a backup. */
  onRestored?: ((name: string) => void) | undefined;
}

/** An inspector on a page. */
export interface Inspector extends Disposable {
  /**
   * Removes the inspector from the page and stops its work. The database stays open. Idempotent.
   */
  dispose(): void;
}

/**
 * Appends an inspector of a database to `element`. Its colours follow the page's `color-scheme`.
 * The custom properties `--mangrove-accent`, `--mangrove-ink`, `--mangrove-soft`,
 * `--mangrove-line`, `--mangrove-card`, `--mangrove-tint`, `--mangrove-danger`, `--mangrove-font`
 * and `--mangrove-mono` override colours and fonts.
 *
 * ```js
 * const inspector = mountInspector(document.querySelector('#inspector'), db);
 * ```
 */
export function mountInspector(element: ElementType, db: InspectedDatabase, options: InspectorOptions = {}): Inspector {
  const { collections = [], refreshMs = 1000, onRestored } = options;
  const host = document.createElement('div');
  const abort = new AbortController();
  new Panel(host.attachShadow({ mode: 'open' }), db, { collections, refreshMs, onRestored }, abort.signal);
  element.append(host);
  const dispose = (): void => {
    abort.abort();
    host.remove();
  };
  return { dispose, [Symbol.dispose ?? Symbol.for('Symbol.dispose')]: dispose } as Inspector;
}
