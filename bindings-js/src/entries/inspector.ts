/**
 * A view into an open database, for any page: its collections and entries, the trees and the file as pictures, the figures of log and cache, and
 * its upkeep. It needs no framework, and its style stays in a shadow root.
 *
 * @module mangrove-kv/inspector
 */
import { Panel } from '../inspector/panel.ts';
import type { InspectedCollection, InspectedDatabase } from '../inspector/source.ts';

export type { InspectedCollection, InspectedDatabase, InspectedEntries } from '../inspector/source.ts';

/** Options of `mountInspector`. */
export interface InspectorOptions {
  /** Handles of collections that have codecs of your own. The others are opened with the codecs whose ids are stored with them. */
  collections?: readonly InspectedCollection[] | undefined;
  /** Milliseconds between two looks at the figures while it can be seen; what is shown is read again after commits, of other tabs too. Default 1000. */
  refreshMs?: number | undefined;
  /** Called with the name of a database that was made from a backup. */
  onRestored?: ((name: string) => void) | undefined;
}

/** An inspector on a page. */
export interface Inspector extends Disposable {
  /** Takes it off the page and stops what it does. The database stays open. Idempotent. */
  dispose(): void;
}

/**
 * Shows a database inside `element`, behind what is there. Colours are light or dark as the `color-scheme` of the page says; the custom properties
 * `--mangrove-accent`, `--mangrove-ink`, `--mangrove-soft`, `--mangrove-line`, `--mangrove-card`, `--mangrove-tint`, `--mangrove-danger`, `--mangrove-font` and
 * `--mangrove-mono` change them.
 *
 * ```js
 * const inspector = mountInspector(document.querySelector('#inspector'), db);
 * ```
 */
export function mountInspector(element: HTMLElement, db: InspectedDatabase, options: InspectorOptions = {}): Inspector {
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
