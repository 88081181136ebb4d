// Views that overlap in one buffer, or whose buffer is itself part of the value: their bytes are
// stored once.

/** A view or buffer, and the item in the output that was written for it alone. */
export interface StoredView {
  readonly name: string;
  readonly buffer: ArrayBufferLike;
  /** First byte in the buffer. */
  readonly start: number;
  readonly end: number;
  /** Ordinal of the view among the value's objects. */
  readonly ordinal: number;
  /** Start of the item in the output; its bytes are at the item's end. */
  readonly from: number;
  readonly to: number;
}

/** Views that share their bytes, in the order of their ordinals. */
export interface SharedBytes {
  readonly views: StoredView[];
  /**
   * Offset of the bytes in the buffer, rounded down to a multiple of the largest element size so
   * that views stay aligned.
   */
  readonly start: number;
  readonly end: number;
}

const ALIGNMENT = 8;

/** Maps each view that shares bytes to its group. Bytes that no view covers are in no group. */
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
    const bytes = { views: group.sort((a, b) => a.ordinal - b.ordinal), start: start - (start % ALIGNMENT), end };
    for (const view of group) shared.set(view, bytes);
  };
  for (const sharers of byBuffer.values()) {
    if (sharers.length < 2) continue;
    // If the buffer itself is stored, all of its views share its bytes.
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
