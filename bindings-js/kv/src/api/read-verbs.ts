// The verbs that read a collection, each described once for all faces.
import { keyText } from '../codec/keys.ts';
import type { Key, KeyPrefix } from '../codec/keys.ts';
import type { Bounds, Entry, Range, RangeOptions, WithMeta } from '../types/index.ts';
import { KvError } from '../base/errors.ts';
import { ignore } from '../base/async.ts';
import { isSnapshotLost } from '../base/superseded.ts';
import { Content } from '../wire/chunk.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import { decodeKey, decodePart, decodeValue, encodeKey } from '../wire/codecs.ts';
import type { Lookups } from '../wire/lookup.ts';
import { BOUNDS, FOLLOW, META, PREFIXED, RANGE, READ, SIGNAL, checkIterable } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import { encodeSeek, toWindow } from './range.ts';
import type { Scan, Window } from './range.ts';
import { step, within } from './task.ts';
import type { Call, Steps, Task } from './task.ts';
import { ASK, isFast } from '../wire/lookup.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';

export type Pair<K, V> = [K, V] | undefined;

/** Loads what reads and writes values in parts. */
export type LoadValueStream = () => Promise<typeof import('./value-stream.ts')>;

/** The options of an iterator; those of a synchronous one have no signal. */
type ScanOptions<K> = RangeOptions<K> & Partial<WithMeta>;

/** In place of a value of `getMany`: the reply has no more of them. */
const CUT = 2;

const ENTRIES = { ...READ, ...META };
const SYNC_ENTRIES = { ...RANGE, ...META };
const PREFIXED_UNTIL = { ...PREFIXED, ...SIGNAL };

export function checkOpen(view: View): void {
  if (view.isClosed) throw new KvError('KV_CLOSED', 'the snapshot is closed');
}

export function checkPosition(index: number): void {
  if (!Number.isSafeInteger(index)) throw new KvError('KV_INVALID_ARGUMENT', 'index has to be a whole number');
}

export class ReadVerbs<K, V> {
  readonly target: Target<K, V>;
  readonly view: View;
  /** Whether the face is asynchronous. */
  readonly canWait: boolean;
  readonly #parts: LoadValueStream | undefined;

  /** Only an asynchronous face has `parts`. */
  constructor(target: Target<K, V>, view: View, parts?: LoadValueStream) {
    this.target = target;
    this.view = view;
    this.canWait = parts !== undefined;
    this.#parts = parts;
  }

  get(key: K): Task<V | undefined> {
    if (this.canWait && this.target.value.isBlob) return this.inParts('get', key);
    const lookups = this.#lookups;
    const found = lookups ? lookups.get(this.target, this.view, key) : ASK;
    if (found !== ASK) return { found };
    const bytes = encodeKey(this.target, key);
    return this.#call(
      Op.get,
      (writer) => writer.bytes(bytes),
      (reader) => this.#optional(reader.optional()),
    );
  }

  getMany(keys: Iterable<K>): Task<(V | undefined)[]> {
    return this.#many('getMany', keys, (encoded) => this.#getMany(encoded));
  }

  getEntry(key: K): Task<Entry<K, V> | undefined> {
    const bytes = encodeKey(this.target, key);
    return this.#call(
      Op.entry,
      (writer) => writer.bytes(bytes),
      (reader) => {
        const value = reader.optional();
        if (value === undefined) return undefined;
        const known = readMeta(reader);
        return { key: decodeKey(this.target.key, bytes), value: decodeValue(this.target.value, value), ...known };
      },
    );
  }

  has(key: K): Task<boolean> {
    const many = this.hasMany([key]);
    if ('found' in many) return { found: many.found[0]! };
    const { write, read } = many as Call<boolean[]>;
    return { write, read: (reader) => read(reader)[0]! };
  }

  hasMany(keys: Iterable<K>): Task<boolean[]> {
    return this.#many('hasMany', keys, (encoded) =>
      this.#call(
        Op.hasMany,
        (writer) => writeKeys(writer, encoded),
        (reader) => encoded.map(() => reader.u8() !== 0),
      ),
    );
  }

  entries(options?: ScanOptions<K>): Scan<unknown, K> {
    return this.#entries('entries', options);
  }

  keys(options?: RangeOptions<K>): Scan<K, K> {
    return this.#scan('keys', options, this.#read, 'keys');
  }

  values(options?: RangeOptions<K>): Scan<V, K> {
    return this.#scan('values', options, this.#read, 'values');
  }

  prefix(prefix: KeyPrefix<K>, options?: ScanOptions<K>): Scan<unknown, K> {
    return this.#entries('prefix', { ...options, prefix }, () =>
      checkNames('prefix', options, this.canWait ? PREFIXED_UNTIL : PREFIXED),
    );
  }

  /** For `forEach`, which is an iteration of its own name in errors. */
  pairs(call: string, options: RangeOptions<K> | undefined): Scan<[K, V], K> {
    return this.#scan(call, options, this.#read, 'entries');
  }

  first(options?: RangeOptions<K>): Task<Pair<K, V>> {
    return this.#at('first', 0, options);
  }

  last(options?: RangeOptions<K>): Task<Pair<K, V>> {
    return this.#at('last', -1, options);
  }

  at(index: number, options?: RangeOptions<K>): Task<Pair<K, V>> {
    return this.#at('at', index, options);
  }

  count(options?: RangeOptions<K>): Task<number> {
    return this.#unlessMisread(this.#count(toWindow(this.target, 'count', options, this.#read)), options);
  }

  rank(key: K, options?: Bounds<K>): Task<number> {
    const { range } = toWindow(this.target, 'rank', options, this.canWait ? FOLLOW : BOUNDS);
    const bytes = encodeKey(this.target, key);
    return this.#call(
      Op.rank,
      (writer) => writer.range(range).bytes(bytes),
      (reader) => reader.uv(),
    );
  }

  nextExpiry(options?: Bounds<K>): Task<number | undefined> {
    const { range } = toWindow(this.target, 'nextExpiry', options, FOLLOW);
    return this.#call(
      Op.nextExpiry,
      (writer) => writer.range(range),
      (reader) => reader.uv() || undefined,
    );
  }

  /** Reads or writes a value in parts, by a file that is loaded then. */
  async inParts<T>(call: string, key: K, ...args: unknown[]): Promise<T> {
    const { target, view } = this;
    const place = { target, view, key: encodeKey(target, key) };
    return ((await this.#parts!()) as unknown as Record<string, (...args: unknown[]) => Promise<T>>)[call]!(
      place,
      ...args,
    );
  }

  get #read(): object {
    return this.canWait ? READ : RANGE;
  }

  /**
   * An asynchronous lookup is sent as a message now and then, so that the event loop gets a turn.
   */
  get #lookups(): Lookups | undefined {
    const { connection } = this.target;
    const { lookups } = connection;
    return lookups !== undefined && this.canWait && connection.due() !== undefined ? undefined : lookups;
  }

  #entries(call: string, options: ScanOptions<K> | undefined, check?: () => void): Scan<unknown, K> {
    return this.#scan(call, options, this.canWait ? ENTRIES : SYNC_ENTRIES, options?.meta ? 'meta' : 'entries', check);
  }

  /** `content` decides what `T` is. */
  #scan<T>(
    call: string,
    options: RangeOptions<K> | undefined,
    names: object,
    content: keyof typeof Content,
    check = ignore,
  ): Scan<T, K> {
    const { target, view } = this;
    return {
      connection: target.connection,
      op: Op.scanOpen,
      window: () => {
        checkOpen(view);
        check();
        return toWindow(target, call, options, names);
      },
      writeSource: (writer) => writer.uv(view.id).uv(target.index),
      content: Content[content],
      signal: options?.signal,
      decode: itemDecoder(target, content) as DecodeItem<T>,
      isFast: isFast(target),
      misread: () => this.#misread(options),
      encodeSeek: (prefix) => encodeSeek(target, prefix),
    };
  }

  #count({ range, offset, limit }: Window, view?: number): Call<number> {
    return this.#call(
      Op.count,
      (writer) => writer.range(range),
      (reader) => clip(reader.uv(), offset, limit),
      view,
    );
  }

  #at(call: string, index: number, options: RangeOptions<K> | undefined): Task<Pair<K, V>> {
    checkPosition(index);
    const window = toWindow(this.target, call, options, this.#read);
    const { range, reverse, offset, limit } = window;
    const isAll = offset === 0 && limit === Infinity;
    const found =
      index >= 0
        ? this.#from(window, index)
        : isAll
          ? this.#find(range, !reverse, -index - 1)
          : this.#fromEnd(window, index);
    return index === 0 || index === -1 ? this.#unlessMisread(found, options) : found;
  }

  #from({ range, reverse, offset, limit }: Window, index: number, view?: number): Task<Pair<K, V>> {
    const position = offset + index;
    return index < 0 || index >= limit || !Number.isSafeInteger(position)
      ? { found: undefined }
      : this.#find(range, reverse, position, view);
  }

  #fromEnd(window: Window, index: number): Steps<Pair<K, V>> {
    return inOneState(this, function* (this: ReadVerbs<K, V>, view) {
      // The end's position must be known first.
      const count = yield* step(this.#count(window, view));
      return yield* within(this.#from(window, count + index, view));
    });
  }

  #find(range: Window['range'], fromEnd: boolean, position: number, view?: number): Call<Pair<K, V>> {
    // `Op.edge` finds the first or last entry without counting.
    const write = (writer: RequestWriter): RequestWriter => writer.range(range).u8(fromEnd ? 1 : 0);
    return this.#call(
      position === 0 ? Op.edge : Op.at,
      position === 0 ? write : (writer) => write(writer).uv(position),
      (reader) => {
        if (reader.u8() === 0) return undefined;
        const key = reader.bytes();
        const value = reader.bytes();
        return [decodeKey(this.target.key, key), decodeValue(this.target.value, value)];
      },
      view,
    );
  }

  /** If nothing was found, fails if `#misread` can explain that. */
  #unlessMisread<T>(task: Task<T>, options: Range<K> | undefined): Task<T> {
    const call = this.#misread(options);
    return call === undefined ? task : explained(task, call);
  }

  /**
   * Explains an empty result: fails if the prefix is a string and array keys begin with it.
   * Undefined if that cannot be the explanation.
   */
  #misread({ prefix, offset }: Range<K> = {}): Call<void> | undefined {
    if (typeof prefix !== 'string' || offset || this.target.key.id !== 'any') return undefined;
    const { range } = toWindow(
      this.target as unknown as Target<Key, V>,
      'prefix',
      { gte: [prefix], lt: [`${prefix}\uffff`] },
      BOUNDS,
    );
    return this.#call(
      Op.edge,
      (writer) => writer.range(range).u8(0),
      (reader) => {
        if (reader.u8() === 0) return;
        reader.bytes();
        reader.bytes();
        throw new KvError(
          'KV_INVALID_ARGUMENT',
          `the keys that begin with ${keyText(prefix)} are arrays, so their prefix has to be an array: ${keyText([prefix])}`,
        );
      },
    );
  }

  #optional(bytes: Uint8Array | undefined): V | undefined {
    return bytes && decodeValue(this.target.value, bytes);
  }

  /** A call whose request begins with opcode, view and collection. */
  #call<T>(op: number, write: Call<T>['write'], read: Call<T>['read'], view?: number): Call<T> {
    checkOpen(this.view);
    return {
      write: (writer) =>
        write(
          writer
            .u8(op)
            .uv(view ?? this.view.id)
            .uv(this.target.index),
        ),
      read,
    };
  }

  #many<T>(name: 'getMany' | 'hasMany', keys: Iterable<K>, ask: (encoded: Uint8Array[]) => Task<T[]>): Task<T[]> {
    const list = Array.from(checkIterable('the keys', keys));
    const found = this.#lookups?.[name](this.target, this.view, list) ?? ASK;
    if (found !== ASK) return { found: found as T[] };
    const encoded: Uint8Array[] = [];
    for (const key of list) encoded.push(encodeKey(this.target, key));
    return ask(encoded);
  }

  /**
   * A full reply lacks the values of the last keys. Where those of the newest state are asked for,
   * that is open as a snapshot from then on, in which the others are read.
   */
  *#getMany(encoded: readonly Uint8Array[]): Steps<(V | undefined)[]> {
    const { connection } = this.target;
    const id = connection.newId();
    let current = this.view.id;
    const values: (V | undefined)[] = [];
    try {
      for (;;) {
        const left = encoded.slice(values.length);
        yield* step(
          this.#call(
            Op.getMany,
            (writer) => writeKeys(writer.uv(id), left),
            (reader) => {
              const found: (Uint8Array | undefined)[] = [];
              for (let flag; found.length < left.length && (flag = reader.u8()) !== CUT; )
                found.push(flag ? reader.bytes() : undefined);
              for (const bytes of found) values.push(this.#optional(bytes));
            },
            current,
          ),
        );
        if (values.length === encoded.length) return values;
        current ||= id;
      }
    } catch (error) {
      // The tab that kept the state is gone.
      if (current === id && isSnapshotLost(error)) return yield* this.#getMany(encoded);
      throw error;
    } finally {
      if (current === id) connection.postLater((writer) => writer.u8(Op.snapshotClose).uv(id));
    }
  }
}

function writeKeys(writer: RequestWriter, keys: readonly Uint8Array[]): void {
  writer.uv(keys.length);
  for (const bytes of keys) writer.bytes(bytes);
}

/** The part of a number of entries that lies within a window. */
export function clip(entries: number, offset: number, limit: number): number {
  return Math.min(Math.max(entries - offset, 0), limit);
}

function* explained<T>(task: Task<T>, misread: Call<void>): Steps<T> {
  const result = yield* within(task);
  if (!result) yield* step(misread);
  return result;
}

/**
 * Runs steps in one state, whose id they are given: in a snapshot, unless the view is one or nothing
 * can come between.
 */
export function* inOneState<R extends ReadSite, T>(verbs: R, steps: (this: R, view: number) => Steps<T>): Steps<T> {
  const {
    target: { connection },
    view,
    canWait,
  } = verbs;
  if (view.id !== 0 || !canWait) return yield* steps.call(verbs, view.id);
  const id = connection.newId();
  connection.post(
    (writer) => writer.u8(Op.snapshotOpen).uv(id),
    (reader) => reader.uv(),
  );
  try {
    return yield* steps.call(verbs, id);
  } finally {
    connection.postLater((writer) => writer.u8(Op.snapshotClose).uv(id));
  }
}

/** What is read, and by which kind of face. */
export interface ReadSite {
  readonly target: Pick<Target<never, never>, 'connection'>;
  readonly view: View;
  readonly canWait: boolean;
}

export function readMeta(reader: ReplyReader): Pick<Entry<unknown, unknown>, 'version' | 'expiresAt'> {
  const version = reader.uv();
  const expiresAt = reader.uv();
  return expiresAt === 0 ? { version } : { version, expiresAt };
}

/** Decodes one item of a scan. */
function itemDecoder<K, V>(target: Target<K, V>, content: keyof typeof Content): (reader: ReplyReader) => unknown {
  const key = (reader: ReplyReader): K => reader.decoded('key', target.key, target.fastKey);
  const value = (reader: ReplyReader): V => reader.decoded('value', target.value, target.fastValue);
  switch (content) {
    case 'keys':
      return key;
    case 'values':
      return value;
    case 'entries':
      return (reader) => [key(reader), value(reader)];
    case 'meta':
      return (reader) => {
        const [bytes, valueBytes] = [reader.bytes(), reader.bytes()];
        const known = readMeta(reader);
        return {
          key: decodePart('key', target.key, target.fastKey, bytes, 0, bytes.length),
          value: decodePart('value', target.value, target.fastValue, valueBytes, 0, valueBytes.length),
          ...known,
        };
      };
  }
}
