// Views of one buffer whose bytes meet, or that are stored beside the buffer itself: the bytes are stored once.

/** A view or a buffer, and the item in the output that stands for it alone. */
export interface StoredView {
  readonly name: string;
  readonly buffer: ArrayBufferLike;
  /** In the buffer. */
  readonly start: number;
  readonly end: number;
  /** Which of the value's objects it is. */
  readonly ordinal: number;
  /** The item, in the output; its bytes are at the end of it. */
  readonly from: number;
  readonly to: number;
}

/** Those that share their bytes, in the order in which they begin. */
export interface SharedBytes {
  readonly views: StoredView[];
  /** Where the bytes begin in the buffer: at a multiple of the largest element, so that views stay aligned. */
  readonly start: number;
  readonly end: number;
}

const ALIGNMENT = 8;

/** What shares bytes, by each of its views. Bytes that no view shows are in none. */
export function findShared(views: readonly StoredView[]): Map<StoredView, SharedBytes> {
  const shared = new Map<StoredView, SharedBytes>();
  const byBuffer = new Map<ArrayBufferLike, StoredView[]>();
  for (const view of views) {
    const others = byBuffer.get(view.buffer);
    if (others === undefined) byBuffer.set(view.buffer, [view]);
    else others.push(view);
  }
  const add = (group: StoredView[], end: number): void => {
    if (group.length < 2) return;
    const [{ start }] = group as [StoredView];
    const bytes = { views: group.sort((a, b) => a.ordinal - b.ordinal), start: start - start % ALIGNMENT, end };
    for (const view of group) shared.set(view, bytes);
  };
  for (const sharers of byBuffer.values()) {
    if (sharers.length < 2) continue;
    // Where the buffer itself is stored, all of its views are its own.
    const isWhole = sharers.some(({ name }) => name === 'ArrayBuffer');
    let group: StoredView[] = [];
    let end = 0;
    for (const view of sharers.sort((a, b) => a.start - b.start || b.end - a.end)) {
      if (!isWhole && view.start >= end) {
        add(group, end);
        group = [];
      }
      group.push(view);
      end = Math.max(end, view.end);
    }
    add(group, end);
  }
  return shared;
}
