// What is mirrored of one collection, or of one of its indexes: the entries, as the newest commit left them, and over them
// the writes that are under way.
import { KvError } from '../base/errors.ts';
import { decodeKey, decodeValue, encodeValue } from '../wire/codecs.ts';
import { isSame } from '../codec/bytes.ts';
import { decodeAny } from '../codec/key-bytes.ts';
import { ReplyReader } from '../wire/protocol.ts';
import type { ByteRange, RequestWriter } from '../wire/protocol.ts';
import type { Target } from '../wire/collection-target.ts';
import { bytesOf, nameOf, pairName, pairRangeOf, pairSpanOf, partsOf, rangeOf, spanOf } from './names.ts';
import type { RawChange, RawCommit } from './raw-commits.ts';
import { SortedEntries, isWithin } from './sorted-entries.ts';
import type { Held, Span } from './sorted-entries.ts';

/** Part of a store that is loaded as a whole. No two of a store overlap. */
export interface Segment extends Span {
  /** Version of the state that was loaded; `undefined` until its entries are in the store. */
  loadedAt: number | undefined;
}

/** Looks at part of a store. */
export interface Viewer {
  readonly span: Span;
  /** Bytes of the entries in the span, as they are stored. */
  bytes: number;
  /** Whether any of them has changed since this was last reset. */
  isTouched: boolean;
}

/** A write that is under way: the value that it stores under a key, or that it deletes it. */
export interface Written {
  readonly key: unknown;
  readonly value: unknown;
  readonly bytes: number;
  readonly expiresAt: number;
  readonly isDelete: boolean;
}

export abstract class Store<K = unknown, V = unknown> {
  readonly target: Target<K, V>;
  readonly entries = new SortedEntries();
  readonly segments: Segment[] = [];
  readonly viewers = new Set<Viewer>();
  /** No entry expires before this time. */
  nextExpiry = Infinity;
  /** By the name of a key that is being written: what the newest commit has of it here. */
  readonly #hidden = new Map<string, readonly Held[]>();

  constructor(target: Target<K, V>) {
    this.target = target;
  }

  /** The names that a range has here. */
  abstract spanOf(range: ByteRange): Span;
  /** The names under which an entry is here. */
  abstract namesOf(keyName: string, key: K, value: V): readonly string[];
  /** The name of an entry's key. */
  abstract keyNameOf(name: string): string;
  /** Notes which entries of a key are shown from now on. */
  protected abstract note(keyName: string, names: readonly string[]): void;
  /** Notes one more entry that is shown. */
  protected abstract noteMore(name: string): void;
  /** The names of the keys in a range of which entries are shown or hidden. */
  protected abstract keysWithin(keys: Span): Iterable<string>;
  /** What a caller is given for an entry. */
  protected abstract newItem(held: Held): unknown;
  /** Whether the names are those of an index. */
  abstract readonly isIndex: boolean;
  /** A range that has all of a span, and perhaps more at its ends. */
  abstract rangeOf(span: Span): ByteRange;
  /** Writes what a scan of this reads, after the view. */
  abstract writeSource(writer: RequestWriter): RequestWriter;
  /** Reads an entry's name from a scan, with the bytes of its key. */
  protected abstract readName(reader: ReplyReader): { readonly name: string; readonly bytes: number };

  /** Reads an entry of a scan: the object that is here already, if that is the same entry. */
  readEntry(reader: ReplyReader): Held {
    const { name, bytes: keyBytes } = this.readName(reader);
    const start = reader.at;
    const bytes = keyBytes + reader.uv();
    reader.at = start;
    const known = this.#baseOf(name);
    if (known === undefined) {
      const value = reader.decoded('value', this.target.value, this.target.fastValue);
      return { name, value, version: reader.uv(), expiresAt: reader.uv(), bytes, item: undefined };
    }
    const valueBytes = reader.bytes();
    const [version, expiresAt] = [reader.uv(), reader.uv()];
    if (known.version === version && known.expiresAt === expiresAt && this.#hasBytes(known, valueBytes)) return known;
    return { name, value: decodeValue(this.target.value, valueBytes), version, expiresAt, bytes, item: undefined };
  }

  /** Versions alone do not tell: those that died with a leader are given again. */
  #hasBytes({ value }: Held, bytes: Uint8Array): boolean {
    try {
      return isSame(encodeValue(this.target, value as V), bytes);
    } catch {
      return false;
    }
  }

  /** An entry as commits have left it. */
  #baseOf(name: string): Held | undefined {
    if (this.#hidden.size === 0) return this.entries.get(name);
    const hidden = this.#hidden.get(this.keyNameOf(name));
    return hidden === undefined ? this.entries.get(name) : hidden.find((held) => held.name === name);
  }

  tooLarge(maxBytes: number): KvError {
    const { name } = this.target;
    return new KvError(
      'KV_RANGE_TOO_LARGE',
      `the range of ${name === '' ? 'the default collection' : `collection ${JSON.stringify(name)}`} has more than the ${maxBytes} bytes that its mirror may hold; mirror a smaller range, or pass a larger maxBytes`,
    );
  }

  /** Whether a key of which no entry is here has none in the collection. */
  abstract tells(keyName: string): boolean;

  /** The entry of a key, if it is here. */
  find(keyName: string): Held | undefined {
    return this.#shownOf(keyName)[0];
  }

  /** The same object each time for the same entry. */
  itemOf(held: Held): unknown {
    return (held.item ??= this.newItem(held));
  }

  /** Whether all of a span is loaded. */
  covers(span: Span): boolean {
    let { lower } = span;
    for (const segment of this.segments.filter(({ loadedAt }) => loadedAt !== undefined).sort(byLower)) {
      if (segment.lower > lower) break;
      if (segment.upper === undefined) return true;
      if (segment.upper > lower) ({ upper: lower } = segment as { upper: string });
      if (span.upper !== undefined && lower >= span.upper) return true;
    }
    return span.upper !== undefined && lower >= span.upper;
  }

  /** Whether the entry of a name would be here. */
  protected isLoaded(name: string): boolean {
    return this.segments.some((segment) => segment.loadedAt !== undefined && isWithin(segment, name));
  }

  watch(viewer: Viewer): void {
    const { entries } = this;
    viewer.bytes = 0;
    for (let [at, end] = entries.positions(viewer.span); at < end; at++) viewer.bytes += entries.at(at)!.bytes;
    this.viewers.add(viewer);
  }

  /** Makes what was read of a segment its contents. */
  install(segment: Segment, version: number, loaded: readonly Held[]): void {
    const before = this.#baseWithin(segment);
    segment.loadedAt = version;
    if (before.length === 0 && this.#hidden.size === 0) return this.#insert(loaded);
    const changes = new Map<string, Held | undefined>();
    for (const keyName of new Set(before.map(({ name }) => this.keyNameOf(name))))
      this.#setBase(keyName, segment, [], changes);
    const byKey = new Map<string, Held[]>();
    for (const held of loaded) {
      const keyName = this.keyNameOf(held.name);
      const others = byKey.get(keyName);
      if (others === undefined) byKey.set(keyName, [held]);
      else others.push(held);
    }
    for (const [keyName, helds] of byKey) this.#setBase(keyName, segment, helds, changes);
    this.#update(changes);
  }

  /** Adds entries, in order, where there are none. */
  #insert(loaded: readonly Held[]): void {
    this.entries.insert(loaded);
    for (const held of loaded) {
      this.noteMore(held.name);
      this.#noteExpiry(held);
    }
    for (const viewer of this.viewers) {
      for (const { name, bytes } of loaded) {
        if (!isWithin(viewer.span, name)) continue;
        viewer.bytes += bytes;
        viewer.isTouched = true;
      }
    }
  }

  /** Does to a segment what a later commit did to the collection. */
  apply({ version, changes: made }: RawCommit, segment: Segment): void {
    let changes = new Map<string, Held | undefined>();
    for (const change of made) {
      if (change.type === 'clear') {
        this.#update(changes);
        changes = new Map();
        for (const keyName of [...this.keysWithin(change.keys)]) this.#setBase(keyName, segment, [], changes);
      } else if (change.type !== 'rename') {
        this.#change(change, version, segment, changes);
      }
    }
    this.#update(changes);
  }

  #change(
    change: Extract<RawChange, { type: 'set' | 'delete' }>,
    version: number,
    segment: Segment,
    changes: Map<string, Held | undefined>,
  ): void {
    const keyName = nameOf(change.key);
    if (change.type === 'delete') return this.#setBase(keyName, segment, [], changes);
    const { expiresAt } = change;
    const key = decodeKey(this.target.key, change.key);
    const value = decodeValue(this.target.value, change.value);
    const helds = this.namesOf(keyName, key, value)
      .filter((name) => isWithin(segment, name))
      .map((name) => ({
        name,
        value,
        version,
        expiresAt,
        bytes: change.key.length + change.value.length,
        item: undefined,
      }));
    this.#setBase(keyName, segment, helds, changes);
  }

  /** Replaces the entries that a key has in a segment, as a commit left them. */
  #setBase(keyName: string, segment: Span, helds: readonly Held[], changes: Map<string, Held | undefined>): void {
    const hidden = this.#hidden.get(keyName);
    const stays = (held: Held): boolean => !isWithin(segment, held.name);
    if (hidden !== undefined) this.#hidden.set(keyName, [...hidden.filter(stays), ...helds]);
    else this.#show(keyName, [...this.#newestOf(keyName, changes).filter(stays), ...helds], changes);
  }

  /** The entries of a key with those changes that are not in the store yet. */
  #newestOf(keyName: string, changes: ReadonlyMap<string, Held | undefined>): readonly Held[] {
    return this.shownNames(keyName).flatMap(
      (name) => (changes.has(name) ? changes.get(name) : this.entries.get(name)) ?? [],
    );
  }

  #shownOf(keyName: string): readonly Held[] {
    return this.shownNames(keyName).flatMap((name) => this.entries.get(name) ?? []);
  }

  /** The names of the entries of a key that are shown. */
  protected abstract shownNames(keyName: string): readonly string[];

  #show(keyName: string, helds: readonly Held[], changes: Map<string, Held | undefined>): void {
    for (const name of this.shownNames(keyName)) changes.set(name, undefined);
    for (const held of helds) changes.set(held.name, held);
    this.note(
      keyName,
      helds.map(({ name }) => name),
    );
  }

  #update(changes: ReadonlyMap<string, Held | undefined>): void {
    this.entries.update(changes, (before, after) => this.#changed(before, after));
  }

  #changed(before: Held | undefined, after: Held | undefined): void {
    if (before === after) return;
    if (after !== undefined) this.#noteExpiry(after);
    const { name } = (before ?? after)!;
    for (const viewer of this.viewers) {
      if (!isWithin(viewer.span, name)) continue;
      viewer.bytes += (after?.bytes ?? 0) - (before?.bytes ?? 0);
      viewer.isTouched = true;
    }
  }

  /** Shows what a write that is under way stores, over what commits have left. */
  cover(keyName: string, { key, value, bytes, expiresAt, isDelete }: Written): void {
    const changes = new Map<string, Held | undefined>();
    let names: readonly string[];
    try {
      names = isDelete ? [] : this.namesOf(keyName, key as K, value as V);
    } catch {
      // The handle that it is written through has other indexes, or none. It is going to be refused.
      return this.uncover(keyName);
    }
    if (!this.#hidden.has(keyName)) this.#hidden.set(keyName, this.#shownOf(keyName));
    const helds = names
      .filter((name) => this.isLoaded(name))
      .map((name) => ({ name, value, version: 0, expiresAt, bytes, item: undefined }));
    this.#show(keyName, helds, changes);
    this.#update(changes);
  }

  /** Shows what commits have left of a key. */
  uncover(keyName: string): void {
    const hidden = this.#hidden.get(keyName);
    if (hidden === undefined) return;
    this.#hidden.delete(keyName);
    const changes = new Map<string, Held | undefined>();
    this.#show(keyName, hidden, changes);
    this.#update(changes);
    // An entry may have expired while it was hidden.
    for (const held of hidden) this.#noteExpiry(held);
  }

  #noteExpiry({ expiresAt }: Held): void {
    if (expiresAt > 0 && expiresAt < this.nextExpiry) this.nextExpiry = expiresAt;
  }

  /** Removes the entries that have expired. Returns whether there were any. */
  expire(now: number): boolean {
    if (now < this.nextExpiry) return false;
    this.nextExpiry = Infinity;
    const changes = new Map<string, Held | undefined>();
    const { entries } = this;
    for (let at = 0; at < entries.length; at++) {
      const { name, expiresAt } = entries.at(at)!;
      if (expiresAt === 0) continue;
      if (expiresAt > now) {
        if (expiresAt < this.nextExpiry) this.nextExpiry = expiresAt;
        continue;
      }
      changes.set(name, undefined);
      this.#noteLess(name);
    }
    this.#update(changes);
    return changes.size > 0;
  }

  #noteLess(name: string): void {
    const keyName = this.keyNameOf(name);
    this.note(
      keyName,
      this.shownNames(keyName).filter((shown) => shown !== name),
    );
  }

  /** Forgets the entries of a span, which no segment has any more. */
  forget(span: Span): void {
    for (const held of this.#baseWithin(span)) {
      const keyName = this.keyNameOf(held.name);
      const hidden = this.#hidden.get(keyName);
      if (hidden !== undefined)
        this.#hidden.set(
          keyName,
          hidden.filter(({ name }) => name !== held.name),
        );
    }
    for (const { name } of this.entries.remove(span)) {
      this.#noteLess(name);
    }
  }

  /** The entries of a span as commits have left them. */
  #baseWithin(span: Span): Held[] {
    const { entries } = this;
    const shown = entries
      .slice(...entries.positions(span))
      .filter(({ name }) => !this.#hidden.has(this.keyNameOf(name)));
    const hidden = [...this.#hidden.values()].flat().filter(({ name }) => isWithin(span, name));
    return [...shown, ...hidden];
  }

  /** The names of the keys with a write under way. */
  protected get hiddenKeys(): Iterable<string> {
    return this.#hidden.keys();
  }
}

function byLower(a: Span, b: Span): number {
  return a.lower < b.lower ? -1 : 1;
}

/** Entries of a collection in the order of their keys. */
export class CollectionStore<K, V> extends Store<K, V> {
  override readonly isIndex = false;

  override spanOf(range: ByteRange): Span {
    return spanOf(range);
  }

  override rangeOf(span: Span): ByteRange {
    return rangeOf(span);
  }

  override namesOf(keyName: string): readonly string[] {
    return [keyName];
  }

  override tells(keyName: string): boolean {
    return this.isLoaded(keyName);
  }

  override keyNameOf(name: string): string {
    return name;
  }

  protected override shownNames(keyName: string): readonly string[] {
    return [keyName];
  }

  protected override note(): void {}

  protected override noteMore(): void {}

  protected override *keysWithin(keys: Span): Iterable<string> {
    const { entries } = this;
    for (let at = entries.position(keys.lower), end = entries.position(keys.upper); at < end; at++)
      yield entries.at(at)!.name;
    for (const keyName of this.hiddenKeys) if (isWithin(keys, keyName)) yield keyName;
  }

  protected override newItem({ name, value }: Held): unknown {
    return [decodeKey(this.target.key, bytesOf(name)), value];
  }

  override writeSource(writer: RequestWriter): RequestWriter {
    return writer.uv(this.target.index);
  }

  protected override readName(reader: ReplyReader): { readonly name: string; readonly bytes: number } {
    const key = reader.bytes();
    return { name: nameOf(key), bytes: key.length };
  }
}

/** Entries of a collection in the order of an index. */
export class IndexStore<K, V> extends Store<K, V> {
  override readonly isIndex = true;
  readonly #place: number;
  /** By the name of a key, the names of its entries that are shown. */
  readonly #names = new Map<string, readonly string[]>();

  constructor(target: Target<K, V>, place: number) {
    super(target);
    this.#place = place;
  }

  override spanOf(range: ByteRange): Span {
    return pairSpanOf(range);
  }

  override rangeOf(span: Span): ByteRange {
    return pairRangeOf(span);
  }

  override namesOf(keyName: string, key: K, value: V): readonly string[] {
    const reader = new ReplyReader(this.target.indexes!.keysOf(key, value));
    for (let skipped = 0; skipped < this.#place; skipped++)
      for (let left = reader.uv(); left > 0; left--) reader.bytes();
    const names = new Set<string>();
    for (let left = reader.uv(); left > 0; left--) names.add(pairName(nameOf(reader.bytes()), keyName));
    return [...names];
  }

  /** Its index keys may be in a part of the index that is not mirrored. */
  override tells(): boolean {
    return false;
  }

  override keyNameOf(name: string): string {
    return partsOf(name).key;
  }

  protected override shownNames(keyName: string): readonly string[] {
    return this.#names.get(keyName) ?? [];
  }

  protected override note(keyName: string, names: readonly string[]): void {
    if (names.length === 0) this.#names.delete(keyName);
    else this.#names.set(keyName, names);
  }

  protected override noteMore(name: string): void {
    const keyName = this.keyNameOf(name);
    this.#names.set(keyName, [...this.shownNames(keyName), name]);
  }

  protected override *keysWithin(keys: Span): Iterable<string> {
    for (const keyName of this.#names.keys()) if (isWithin(keys, keyName)) yield keyName;
    for (const keyName of this.hiddenKeys) if (isWithin(keys, keyName)) yield keyName;
  }

  protected override newItem({ name, value }: Held): unknown {
    const { indexKey, key } = partsOf(name);
    return {
      indexKey: decodeAny(bytesOf(indexKey)),
      key: decodeKey(this.target.key, bytesOf(key)),
      value,
    };
  }

  override writeSource(writer: RequestWriter): RequestWriter {
    return writer.uv(this.target.index).uv(this.#place);
  }

  protected override readName(reader: ReplyReader): { readonly name: string; readonly bytes: number } {
    const [indexKey, key] = [reader.bytes(), reader.bytes()];
    return { name: pairName(nameOf(indexKey), nameOf(key)), bytes: key.length };
  }
}
