// The indexes that a collection was opened with: the index keys of what is written, and declaring.
import { KvError } from '../base/errors.ts';
import { misnamed } from '../base/names.ts';
import type { Names } from '../base/names.ts';
import { keyCodecs } from '../codec/keys.ts';
import type { Key } from '../codec/keys.ts';
import { SHORT } from '../codec/bytes.ts';
import { anyFast } from '../codec/key-bytes.ts';
import { abortable, ignore, loadChunk } from '../base/async.ts';
import type { BuildIndexesOptions, IndexOptions } from '../types/indexes.ts';
import { decodeKey, decodeValue, typed } from '../wire/codecs.ts';
import type { Connection } from '../wire/connection.ts';
import { Op } from '../wire/opcodes.ts';
import { RequestWriter } from '../wire/protocol.ts';
import type { ReplyReader } from '../wire/protocol.ts';
import type { Target, TargetIndexes } from '../wire/collection-target.ts';
import type { IndexDefinition } from '../wire/contracts.ts';

const INDEX: Names<IndexOptions<unknown, unknown>> = { key: 1, multi: 1, unique: 1, version: 1 };
const MAX_VERSION = 0xffff_ffff;

const STRICT = 0;
const STORED = 'stored';

interface Declared<K, V> extends IndexDefinition {
  readonly key: IndexOptions<K, V>['key'];
  readonly multi: boolean;
}

/** What the engine was asked for one collection and one set of indexes. */
interface Asked {
  /** The collection's name. */
  readonly name: string;
  readonly declared: Promise<void>;
  isDeclared: boolean;
  /** Number of indexes that had to be built when they were declared. */
  incomplete: number;
  built: Promise<void> | undefined;
}

/** By index of the collection. */
const asked = new WeakMap<Connection, Map<number, Asked>>();

function declareRequest(index: number): (writer: RequestWriter) => unknown {
  return (writer) => writer.u8(Op.declareIndexes).u8(STRICT).uv(index);
}

/** Returns how many indexes have to be built. */
function readDeclared(reader: ReplyReader): number {
  reader.uv();
  return reader.uv();
}

/** Forgets what was declared of a collection that was dropped or renamed. */
export function forgetIndexes(connection: Connection, name: string): void {
  const all = asked.get(connection);
  for (const [index, known] of all ?? []) if (known.name === name) all?.delete(index);
}

function refused(name: string, what: string, cause?: unknown): KvError {
  return new KvError('KV_INVALID_ARGUMENT', `the index ${JSON.stringify(name)}: ${what}`, { cause });
}

/** Throws unless `name` can name an index. */
export function checkIndexName(name: unknown): string {
  if (typeof name === 'string' && name !== '' && !/\p{Surrogate}/u.test(name)) return name;
  throw new KvError('KV_INVALID_ARGUMENT', 'the name of an index has to be a well-formed string that is not empty');
}

function check<K, V>([name, options]: [string, IndexOptions<K, V>]): Declared<K, V> {
  checkIndexName(name);
  const wrong = misnamed(`the index ${JSON.stringify(name)}`, options, INDEX);
  if (wrong !== undefined) throw refused(name, wrong);
  const { key, multi = false, unique = false, version = 1 } = options;
  if (typeof key !== 'function' && key !== STORED) throw refused(name, 'key has to be a function');
  if (typeof multi !== 'boolean' || typeof unique !== 'boolean')
    throw refused(name, 'multi and unique have to be booleans');
  if (!Number.isSafeInteger(version) || version < 0 || version > MAX_VERSION)
    throw refused(name, 'version has to be a whole number');
  return { name, key, multi, unique, version };
}

/** Checks the option `indexes` of a collection. */
export function toIndexes<K, V>(
  options: { readonly [name: string]: IndexOptions<K, V> } | undefined,
): Indexes<K, V> | undefined {
  if (options === undefined) return undefined;
  if (typeof options !== 'object' || options === null)
    throw new KvError('KV_INVALID_ARGUMENT', 'indexes has to be an object of indexes by name');
  const declared = Object.entries(options).map(check);
  return declared.length === 0 ? undefined : new Indexes(declared);
}

/** Shared by all records, as no foreign code runs while it is written. */
const scratch = new RequestWriter();

/** An index key that is encoded, or that its codec's fast path may encode. */
type EarlyKey = Uint8Array | string | number;

export class Indexes<K, V> implements TargetIndexes<K, V> {
  readonly #declared: readonly Declared<K, V>[];

  constructor(declared: readonly Declared<K, V>[]) {
    this.#declared = declared;
  }

  get definitions(): IndexDefinition[] {
    return this.#declared.map(({ name, version, unique }) => ({ name, version, unique }));
  }

  /** Place of an index among those declared. */
  place(name: string): number {
    const place = this.#declared.findIndex((index) => index.name === name);
    if (place >= 0) return place;
    throw refused(name, 'it was not declared where the collection was opened');
  }

  /**
   * A record's index keys, as the engine reads them in a batch. The view is valid until the next
   * call, which foreign code may make.
   */
  keysOf(key: K, value: V): Uint8Array {
    const lists = this.#declared.map((index) => indexKeys(index, key, value, earlyKey));
    scratch.reset(false);
    for (const list of lists) {
      scratch.uv(list.length);
      for (const each of list) {
        if (typeof each === 'object') scratch.bytes(each);
        else if (!scratch.encoded(anyFast, each)) scratch.bytes(encode(each));
      }
    }
    return scratch.view();
  }

  #asked({ connection, name, index }: Target<K, V>): Asked {
    let all = asked.get(connection);
    if (all === undefined) asked.set(connection, (all = new Map()));
    let state = all.get(index);
    if (state === undefined) {
      // What is read as it is stored is not declared, and may have to be built.
      const isDeclared = this.#declared.some(({ key }) => key === STORED);
      const declared = isDeclared
        ? Promise.resolve()
        : connection.requestLoading(declareRequest(index), readDeclared).then((incomplete) => {
            Object.assign(known, { isDeclared: true, incomplete });
          });
      const known: Asked = { name, declared, isDeclared, incomplete: 1, built: undefined };
      state = known;
      declared.catch(() => all.delete(index));
      all.set(index, state);
    }
    return state;
  }

  /**
   * Declares the indexes to the engine, unless that was done. Returns a promise of its end, or
   * `undefined` once it has succeeded.
   */
  declare(target: Target<K, V>): Promise<void> | undefined {
    const state = this.#asked(target);
    return state.isDeclared ? undefined : state.declared;
  }

  /** As `declare`; with `waits`, until they are built. */
  ready(target: Target<K, V>, waits: boolean): Promise<void> | undefined {
    const declared = this.declare(target);
    if (!waits) return declared;
    return Promise.resolve(declared).then(() => (this.#asked(target).incomplete > 0 ? this.#built(target) : undefined));
  }

  /** As `declare`, at once. */
  declareSync(target: Target<K, V>): void {
    const state = this.#asked(target);
    if (state.isDeclared) return;
    const { connection, index } = target;
    state.incomplete = connection.requestSync(declareRequest(index), readDeclared);
    state.isDeclared = true;
  }

  /** Forgets that the indexes were declared, as they may be gone. */
  forget({ connection, index }: Target<K, V>): void {
    asked.get(connection)?.delete(index);
  }

  /** Declares the indexes, and builds those that are not complete. */
  begin(target: Target<K, V>): void {
    const state = this.#asked(target);
    // Writes report why they cannot be declared, and `buildIndexes` why they cannot be built.
    if (!state.isDeclared)
      state.declared.then(() => (state.incomplete > 0 ? this.#built(target) : undefined)).catch(ignore);
  }

  async build(target: Target<K, V>, { onProgress, signal }: BuildIndexesOptions): Promise<void> {
    await this.declare(target);
    return onProgress === undefined
      ? abortable(this.#built(target), signal)
      : this.#run(target, { onProgress, signal });
  }

  async #run(target: Target<K, V>, options?: BuildIndexesOptions): Promise<void> {
    const { buildIndexes } = await loadChunk(import('./maintenance/compact.ts'));
    const { connection, index: collection } = target;
    const declared = this.#declared;
    return buildIndexes(
      {
        connection,
        collection,
        names: declared.map(({ name }) => name),
        keysOf: (at, key, value) =>
          indexKeys(declared[at]!, decodeKey(target.key, key), decodeValue(target.value, value), encode),
      },
      options,
    );
  }

  /** The one build that all callers without a function of their own share. */
  #built(target: Target<K, V>): Promise<void> {
    const state = this.#asked(target);
    state.built ??= this.#run(target)
      .then(() => {
        state.incomplete = 0;
      })
      .finally(() => {
        state.built = undefined;
      });
    return state.built;
  }
}

const { encode } = keyCodecs.any;

/** Encodes what the fast path does not take. Longer strings may be refused, so they are encoded at once too. */
function earlyKey(key: Key): EarlyKey {
  const isSimple = typeof key === 'number' ? !Number.isNaN(key) : typeof key === 'string' && key.length <= SHORT;
  return isSimple ? (key as string | number) : encode(key);
}

/** The keys of an entry in one index, each turned into what `encodeKey` returns. */
function indexKeys<K, V, T>(
  { name, key: compute, multi }: Declared<K, V>,
  key: K,
  value: V,
  encodeKey: (key: Key) => T,
): T[] {
  if (compute === STORED)
    throw new KvError(
      'KV_INDEX_MISMATCH',
      `the index ${JSON.stringify(name)} was opened as it is stored; open the collection with its function`,
    );
  let computed: Key | undefined;
  try {
    computed = compute(value, key);
  } catch (cause) {
    throw typed('KV_INVALID_VALUE', `the function of the index ${JSON.stringify(name)} threw ${String(cause)}`, cause);
  }
  if (computed === undefined) return [];
  if (multi && !Array.isArray(computed)) {
    throw new KvError(
      'KV_INVALID_VALUE',
      `the function of the index ${JSON.stringify(name)} has to return an array of index keys, as it is multi`,
    );
  }
  const keys = multi ? (computed as readonly Key[]) : [computed];
  try {
    return keys.map((each) => encodeKey(each));
  } catch (cause) {
    const { code, message } = typed('KV_INVALID_KEY', String(cause), cause);
    throw new KvError(code, `${message} (index key of ${JSON.stringify(name)})`, { cause });
  }
}
