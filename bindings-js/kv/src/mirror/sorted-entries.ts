// Entries in memory, sorted by name. A name is an encoded key with one character for each byte, so comparing two names with `<` compares the bytes.

export interface Held {
  readonly name: string;
  readonly value: unknown;
  /** Number of the commit that wrote it; 0 while the write is under way. */
  readonly version: number;
  /** Milliseconds since 1970, or 0 for never. */
  readonly expiresAt: number;
  /** Bytes of key and value as they are stored. */
  readonly bytes: number;
  /** What is shown of the entry, once that has been asked for: the same object each time. */
  item: unknown;
}

/** From `lower` to before `upper`; without `upper`, to the end. */
export interface Span {
  readonly lower: string;
  readonly upper: string | undefined;
}

/** Which entries of a span, and in which order. */
export interface Shown {
  readonly reverse: boolean;
  readonly offset: number;
  readonly limit: number;
}

/** More changes than this at once are merged in one pass; fewer move the entries behind each. */
const FEW = 24;

export function isWithin({ lower, upper }: Span, name: string): boolean {
  return name >= lower && (upper === undefined || name < upper);
}

export class SortedEntries {
  #list: Held[] = [];

  get length(): number {
    return this.#list.length;
  }

  at(position: number): Held | undefined {
    return this.#list[position];
  }

  /** The position of the first entry that is not before `name`; without a name, the end. O(log n). */
  position(name: string | undefined): number {
    const list = this.#list;
    if (name === undefined) return list.length;
    let low = 0;
    let high = list.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (list[middle]!.name < name) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  get(name: string): Held | undefined {
    const found = this.#list[this.position(name)];
    return found?.name === name ? found : undefined;
  }

  /** The positions of a span: from the first to before the last. O(log n). */
  positions({ lower, upper }: Span): [from: number, to: number] {
    const from = this.position(lower);
    return [from, Math.max(this.position(upper), from)];
  }

  /** The positions of that part of a span which a window shows, whose offset counts from its end if it is reversed. */
  positionsOf(span: Span, { reverse, offset, limit }: Shown): [from: number, to: number] {
    const [from, to] = this.positions(span);
    if (reverse) return [Math.max(to - offset - limit, from), Math.max(to - offset, from)];
    return [Math.min(from + offset, to), Math.min(from + offset + limit, to)];
  }

  slice(from: number, to: number): Held[] {
    return this.#list.slice(from, to);
  }

  /**
   * Stores an entry for each name, or removes the one that is there; calls `changed` for each name where there is or
   * was one. O(n) at most, with m changes plus O(m log n).
   */
  update(
    changes: ReadonlyMap<string, Held | undefined>,
    changed: (before: Held | undefined, after: Held | undefined) => void,
  ): void {
    const list = this.#list;
    const moved: [name: string, after: Held | undefined][] = [];
    for (const [name, after] of changes) {
      const at = this.position(name);
      const found = list[at];
      const before = found?.name === name ? found : undefined;
      if (before === undefined && after === undefined) continue;
      if (before !== undefined && after !== undefined) list[at] = after;
      else moved.push([name, after]);
      changed(before, after);
    }
    if (moved.length > FEW) return this.#merge(moved);
    for (const [name, after] of moved) {
      if (after === undefined) list.splice(this.position(name), 1);
      else list.splice(this.position(name), 0, after);
    }
  }

  #merge(moved: [name: string, after: Held | undefined][]): void {
    moved.sort(([a], [b]) => (a < b ? -1 : 1));
    const merged: Held[] = [];
    const list = this.#list;
    let at = 0;
    for (const [name, after] of moved) {
      for (; at < list.length && list[at]!.name < name; at++) merged.push(list[at]!);
      if (after === undefined) at++;
      else merged.push(after);
    }
    for (; at < list.length; at++) merged.push(list[at]!);
    this.#list = merged;
  }

  /** Adds entries in order, between two that are neighbours. */
  insert(sorted: readonly Held[]): void {
    if (sorted.length === 0) return;
    const at = this.position(sorted[0]!.name);
    this.#list = this.#list.slice(0, at).concat(sorted, this.#list.slice(at));
  }

  /** Removes the entries of a span, and returns them. */
  remove({ lower, upper }: Span): Held[] {
    const from = this.position(lower);
    return this.#list.splice(from, Math.max(this.position(upper) - from, 0));
  }
}
