// Types shared by the parts of the inspector.
import type { Layout, Stats } from 'mangrove-kv';
import type { Source } from './source.ts';

/** State shared by all parts: the inspected database and the chosen collection. */
export interface Context {
  readonly source: Source;
  /** Aborted when the inspector is disposed. */
  readonly signal: AbortSignal;
  /** Name of the chosen collection. */
  chosen: string;
  /**
   * Reads again and redraws the open view; `withLayout` forces a new layout, however long it takes.
   */
  refresh(withLayout: boolean): Promise<void>;
  /** Shows an error until the next success. */
  fail(error: unknown): void;
  /** Announces text to screen readers. */
  announce(text: string): void;
}

/** One part of the inspector, shown under its tab. */
export interface View {
  readonly title: string;
  readonly element: HTMLElement;
  /** Redraw at every refresh, not only after commits. */
  readonly isLive?: boolean;
  /**
   * Draws the current state. Called when the view is opened and, while it is open, after commits.
   */
  show(stats: Stats, layout: Layout): void | Promise<void>;
}
