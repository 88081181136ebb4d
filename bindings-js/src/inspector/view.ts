// What the parts of the inspector have in common.
import type { Layout, Stats } from 'mangrove-kv';
import type { Source } from './source.ts';

/** What all parts share: what is inspected, and which collection is chosen. */
export interface Context {
  readonly source: Source;
  /** Aborted when the inspector is disposed of. */
  readonly signal: AbortSignal;
  /** Name of the chosen collection. */
  chosen: string;
  /** Reads again and shows what is open; with a layout if that is asked for, however long it takes. */
  refresh(withLayout: boolean): Promise<void>;
  /** Shows an error until the next success. */
  fail(error: unknown): void;
  /** For screen readers. */
  announce(text: string): void;
}

/** One part, shown under its tab. */
export interface View {
  readonly title: string;
  readonly element: HTMLElement;
  /** It is drawn at each look, not after commits only. */
  readonly isLive?: boolean;
  /** Draws what is there now. Called when it is opened and after commits while it is open. */
  show(stats: Stats, layout: Layout): void | Promise<void>;
}
