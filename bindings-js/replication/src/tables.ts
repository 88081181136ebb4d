// The collections that replication reads and writes: the application's, as bytes, and its own beside them.
import { keyCodecs, KvError, valueCodecs } from 'mangrove-kv';
import { TextEncoder, crypto } from 'mangrove-kv/internal';
import type {
  Change as FeedChange,
  Collection,
  Database,
  IndexOptions,
  Key,
  KeyCodec,
  Transaction,
  ValueCodec,
} from 'mangrove-kv';
import { ByteSink, ByteSource, fromHex, toHex } from './bytes.ts';
import { keyId } from './key-ranges.ts';
import { MAX_NAME_BYTES, Modes, isReplicableName } from './modes.ts';
import type { PrefixMode, ReplicationMode } from './modes.ts';
import { Pace } from './pace.ts';
import type { AppliedRow, AsideRow, OfferedRow, ReplicaState } from './state.ts';

/** In `mangrove:`, so that `collections()` leaves it out. */
export const STATE_COLLECTION = 'mangrove:replication';
/** No feed has changes of these. */
const PREFIX = 'mangrove:private/replication';

export type Bytes = Uint8Array;
export type Rows = Collection<Bytes, Bytes>;

/** A codec of keys or values of any type. */
export interface ReplicationCodec {
  /** Stored with the collection, and the same on all devices. */
  readonly id: string;
  /** Returns the bytes of a key or value. */
  encode(value: never): Uint8Array;
  /** Returns what `encode` turned into these bytes. */
  decode(bytes: Uint8Array): unknown;
}

/** A collection that is replicated, with the options with which the application opens it. */
export interface ReplicatedCollectionOptions {
  /** Key codec of the collection. Default: `keyCodecs.any`. */
  readonly key?: ReplicationCodec | undefined;
  /** Value codec of the collection. Default: `valueCodecs.structured()`. */
  readonly value?: ReplicationCodec | undefined;
  /** All indexes of the collection; if any keys are in merge mode, none of them may be unique. */
  readonly indexes?: { readonly [name: string]: IndexOptions<never, never> } | undefined;
  /** Mode of keys without a prefix of `prefixModes`. Default: the option `mode` of `replicate`. */
  readonly mode?: ReplicationMode | undefined;
  /** Keys with a mode of their own, by what they begin with; of several prefixes the longest decides. Default: none. */
  readonly prefixModes?: readonly PrefixMode[] | undefined;
}

export interface Table {
  readonly name: string;
  readonly modes: Modes;
  /** Codecs and modes, as records name them. */
  readonly declaration: string;
  /** What replication knows of the keys. */
  readonly rows: Rows;
  /** The entries; undefined: this program does not know the collection, and keeps what the log has of it. */
  readonly data: Rows | undefined;
  readonly unique: readonly UniqueIndex[];
}

export interface UniqueIndex {
  readonly name: string;
  /** The index keys of an entry. */
  readonly keysOf: (value: Bytes, key: Bytes) => readonly Key[];
  /** Ids of keys whose entries are left out of the index when they are written. */
  readonly apart: Set<string>;
}

/** A collection of the option. */
export interface KnownTable extends Table {
  readonly data: Rows;
  readonly key: KeyCodec<unknown>;
  readonly value: ValueCodec<unknown>;
}

const raw = (id: string): KeyCodec<Bytes> & ValueCodec<Bytes> & { readonly isRaw: true } => ({
  id,
  isRaw: true,
  encode: (bytes: Bytes) => bytes,
  decode: (bytes: Bytes) => bytes,
});

type AnyIndex = IndexOptions<unknown, unknown>;

type Change<T> = (
  tx: Transaction,
  state: ReplicaState,
) => Promise<{ readonly state: ReplicaState; readonly result: T }>;

/** The application's index function for bytes. What it throws must not stop replication: no index keys. */
function indexOfBytes(index: AnyIndex, key: KeyCodec<unknown>, value: ValueCodec<unknown>): AnyIndex {
  if (typeof index.key !== 'function') return index;
  const { key: compute } = index;
  return {
    ...index,
    key: (valueBytes: unknown, keyBytes: unknown) => {
      try {
        return compute(value.decode(valueBytes as Bytes), key.decode(keyBytes as Bytes));
      } catch {
        return undefined;
      }
    },
  } as AnyIndex;
}

function uniqueOf(indexes: readonly (readonly [string, AnyIndex])[]): UniqueIndex[] {
  return indexes
    .filter(([, index]) => index.unique === true)
    .map(([name, index]) => {
      const { key: compute } = index;
      const keysOf = (valueBytes: Bytes, keyBytes: Bytes): readonly Key[] => {
        const found: unknown = typeof compute === 'function' ? compute(valueBytes, keyBytes) : undefined;
        if (found === undefined) return [];
        return index.multi === true ? (found as readonly Key[]) : [found as Key];
      };
      return { name, keysOf, apart: new Set<string>() };
    });
}

function leavingOut(index: AnyIndex, { apart }: UniqueIndex): AnyIndex {
  const { key: compute } = index;
  if (typeof compute !== 'function') return index;
  return {
    ...index,
    key: (value: unknown, key: unknown) =>
      apart.size > 0 && apart.has(keyId(key as Bytes)) ? undefined : compute(value, key),
  } as AnyIndex;
}

function toTable(db: Database, name: string, options: ReplicatedCollectionOptions, mode: ReplicationMode): KnownTable {
  if (name.startsWith('mangrove:')) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `replicate: collection ${JSON.stringify(name)} cannot be replicated; give the data a collection with a name of its own`,
    );
  }
  if (!isReplicableName(name))
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `replicate: the name of a collection that is replicated has at most ${MAX_NAME_BYTES} bytes, and ${JSON.stringify(name)} has more`,
    );
  const key = (options.key ?? keyCodecs.any) as KeyCodec<unknown>;
  const modes = Modes.of(name, key, mode, options.prefixModes ?? []);
  const value = (options.value ?? valueCodecs.structured()) as ValueCodec<unknown>;
  const indexes = Object.entries((options.indexes ?? {}) as { readonly [name: string]: AnyIndex });
  const ofBytes = indexes.map(([index, given]) => [index, indexOfBytes(given, key, value)] as const);
  const unique = uniqueOf(ofBytes);
  if (modes.has('merge') && unique[0] !== undefined) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `replicate: index ${JSON.stringify(unique[0].name)} of ${JSON.stringify(name)} is unique, which devices cannot keep offline; use mode "strict"`,
    );
  }
  const data = db.collection<Bytes, Bytes>(name, {
    key: raw(key.id),
    value: raw(value.id),
    ...(indexes.length > 0 && {
      indexes: Object.fromEntries(
        ofBytes.map(([index, given]) => {
          const isUnique = unique.find((each) => each.name === index);
          return [index, isUnique === undefined ? given : leavingOut(given, isUnique)];
        }),
      ) as never,
    }),
  });
  // The feed decodes with the codecs that were registered last: those have to be the application's.
  db.collection(name, { key, value });
  return {
    name,
    modes,
    declaration: modes.declare(key.id, value.id),
    key,
    value,
    data,
    rows: rowsOf(db, name),
    unique,
  };
}

const rowsOf = (db: Database, name: string): Rows =>
  db.collection(`${PREFIX}/rows/${name}`, { key: keyCodecs.bytes, value: valueCodecs.bytes });

/** Longer ones are not in the key that finds a value by its expiry. */
const MAX_NAMED_BYTES = 256;

/** What finds a value by its expiry: a row whose key begins with the time. Without the name in it, it stays until then. */
export function expiryRow(expiresAt: number, { name }: Table, key: Bytes): readonly [key: Bytes, value: Bytes] {
  const named = new ByteSink().text(name).raw(key).done();
  const unique = named.length <= MAX_NAMED_BYTES ? named : new TextEncoder().encode(randomId());
  return [new ByteSink().u64(BigInt(expiresAt)).raw(unique).done(), named];
}

export function readExpiryRow(value: Bytes): { readonly name: string; readonly key: Bytes } {
  const source = new ByteSource(value);
  return { name: source.text(), key: source.rest() };
}

export const expiryOf = (key: Bytes): number => Number(new ByteSource(key).u64());

/** End of the rows with times up to one. */
export const expiryEnd = (time: number): Bytes => new ByteSink().u64(BigInt(time + 1)).done();

export class Tables {
  readonly db: Database;
  /** Those of the option. */
  readonly byName = new Map<string, KnownTable>();
  readonly #hidden = new Map<string, Table>();
  readonly state: Collection<string, ReplicaState>;
  /** The last applied record of each device. */
  readonly applied: Collection<string, AppliedRow>;
  readonly outbox: Collection<number, Bytes>;
  /** Strict records of tabs, by an id that the tab gave. */
  readonly offered: Collection<string, OfferedRow>;
  /** Values that expire, by their time, collection and key. */
  readonly expiring: Rows;
  /** Records without effect, by their position. */
  readonly aside: Collection<number, AsideRow>;
  /** Parts of records that are not complete yet, by device and number. */
  readonly chunks: Collection<readonly [string, number], Bytes>;
  /** A row whose version the state knows. */
  readonly witness: Collection<string, null>;
  /** Large values that are not in the object store yet, by the hash of what is stored there. */
  readonly blobs: Collection<string, Bytes>;
  /** Of what is done in `change`. */
  readonly pace = new Pace();
  /** Of the running `change`. */
  #writes: Promise<unknown>[] = [];
  /** The running `change` leaves entries out of unique indexes that have their keys already; see `Model.write`. */
  isLeavingOut = false;
  /** What the last `change` has left out. */
  leftOut: KvError[] = [];
  #maxKeyBytes: number | undefined;
  /** Conflicts that the application has not handled yet. */
  readonly conflicts: Collection<number, unknown>;

  constructor(
    db: Database,
    collections: { readonly [name: string]: ReplicatedCollectionOptions },
    mode: ReplicationMode,
  ) {
    this.db = db;
    for (const [name, options] of Object.entries(collections))
      this.byName.set(name, toTable(db, name, options, options.mode ?? mode));
    this.state = db.collection(STATE_COLLECTION, { key: keyCodecs.string, value: valueCodecs.json<ReplicaState>() });
    this.applied = db.collection(`${PREFIX}/applied`, { key: keyCodecs.string, value: valueCodecs.json<AppliedRow>() });
    this.outbox = db.collection(`${PREFIX}/outbox`, { key: keyCodecs.int53, value: valueCodecs.bytes });
    this.offered = db.collection(`${PREFIX}/offered`, { key: keyCodecs.string, value: valueCodecs.json<OfferedRow>() });
    this.expiring = db.collection(`${PREFIX}/expiring`, { key: keyCodecs.bytes, value: valueCodecs.bytes });
    this.aside = db.collection(`${PREFIX}/aside`, { key: keyCodecs.int53 });
    this.chunks = db.collection(`${PREFIX}/chunks`, {
      key: keyCodecs.tuple<readonly [string, number]>(),
      value: valueCodecs.bytes,
    });
    this.witness = db.collection(`${PREFIX}/witness`, { key: keyCodecs.string, value: valueCodecs.json<null>() });
    this.blobs = db.collection(`${PREFIX}/blobs`, { key: keyCodecs.string, value: valueCodecs.bytes });
    this.conflicts = db.collection(`${PREFIX}/conflicts`, { key: keyCodecs.int53 });
  }

  /** The longest key that the database takes, with or without an expiry. */
  async maxKeyBytes(): Promise<number> {
    return (this.#maxKeyBytes ??= (await this.db.stats()).maxExpiringKeySize);
  }

  /** A collection that the log has, as this program opens it or, if it does not know it, as it is declared. */
  table(name: string, declaration: string): Table {
    const known = this.byName.get(name) ?? this.#hidden.get(name);
    if (known !== undefined) return known;
    const table = {
      name,
      modes: Modes.parse(declaration),
      declaration,
      rows: rowsOf(this.db, name),
      data: undefined,
      unique: [],
    };
    this.#hidden.set(name, table);
    return table;
  }

  /** A collection whose local writes are sent: one that a program on this file knows, and that was compared with the base. */
  capturing({ collections }: ReplicaState, name: string): Table | undefined {
    const declaration = collections[name];
    return declaration === undefined ? undefined : this.table(name, declaration);
  }

  /** The entries of a collection, to be read: also of one that only other programs on this file know. */
  entriesOf({ name, data, declaration }: Table): Rows {
    if (data !== undefined) return data;
    const { key, value } = JSON.parse(declaration) as { readonly key: string; readonly value: string };
    return this.db.collection<Bytes, Bytes>(name, { key: raw(key), value: raw(value) });
  }

  /** All collections whose rows the database may have. */
  all({
    declared,
    formerlyDeclared,
    collections,
  }: Pick<ReplicaState, 'declared' | 'formerlyDeclared' | 'collections'>): Table[] {
    const names = { ...formerlyDeclared, ...declared, ...collections };
    for (const { name, declaration } of this.byName.values()) names[name] ??= declaration;
    return Object.entries(names).map(([name, declaration]) => this.table(name, declaration));
  }

  /** Whether a change of the feed can be one of keys in mode "strict". */
  isStrictChange(change: FeedChange<Bytes, Bytes>): boolean {
    const modes = this.byName.get(change.collection)?.modes;
    if (modes === undefined) return false;
    return change.type === 'set' || change.type === 'delete' ? modes.isStrict(change.key) : modes.has('strict');
  }

  /** For a write in `change` whose result nobody needs: `change` waits for it, and for all others at once. */
  defer(write: Promise<unknown>): void {
    write.catch(() => undefined);
    this.#writes.push(write);
  }

  /** Runs `work` with the state; the state it returns is written in the same commit, if it differs. */
  async change<T>(work: Change<T>, durability: 'strict' | 'relaxed'): Promise<T> {
    this.leftOut = [];
    try {
      return await this.#commit(work, durability);
    } catch (error) {
      if ((error as Partial<KvError>).code !== 'KV_UNIQUE') throw error;
    }
    // What the log has lost, and somebody puts back, may have a key that was given away meanwhile.
    this.isLeavingOut = true;
    try {
      return await this.#commit(work, durability);
    } finally {
      this.isLeavingOut = false;
    }
  }

  #commit<T>(work: Change<T>, durability: 'strict' | 'relaxed'): Promise<T> {
    return this.db.transaction(
      async (tx) => {
        this.#writes = [];
        this.leftOut = [];
        const rows = tx.collection(this.state);
        const before = (await rows.get('state')) ?? newState();
        const { state, result } = await work(tx, before);
        if (state !== before) this.defer(rows.set('state', { ...state, serial: before.serial + 1 }));
        await Promise.all(this.#writes);
        return result;
        // Only replication writes its own rows, one commit at a time: a conflict is a local write to a key that
        // this commit writes. The next attempt finds it there, and does not write over it.
      },
      { isolation: 'snapshot', durability, timeout: Infinity, maxRetries: 100 },
    );
  }
}

export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return toHex(new DataView(bytes.buffer).getBigUint64(0));
}

function newState(): ReplicaState {
  return {
    device: toHex(fromHex(randomId()) >> 1n),
    formers: [],
    nextTicket: 1,
    cursor: { position: 0, serverTime: 0, crc: 0 },
    drained: -1,
    drainedBase: 0,
    removedUntil: 0,
    readBefore: 0,
    hlc: toHex(0n),
    time: 0,
    history: 1,
    settled: 1,
    rejoin: undefined,
    isLoading: false,
    collections: {},
    hidden: [],
    declared: {},
    formerlyDeclared: {},
    aside: undefined,
    diverged: undefined,
    isMending: false,
    digests: {},
    witness: 0,
    serial: 0,
  };
}

/** Records that were sent under earlier ids would count as another device's, and be sent again. */
const MAX_FORMERS = 8;

/** Ids begin in the lower half and grow by at most this. */
const MAX_ID_STEP = 2n ** 48n;

/** The device takes another id: a copy of the file has used this one, or the log forgot what it sent. */
export function withNewId(state: ReplicaState, last: AppliedRow, isKept = false): ReplicaState {
  // A greater one: of two writes with the same time, the later one wins.
  const device = toHex(BigInt.asUintN(64, fromHex(state.device) + 1n + (fromHex(randomId()) % MAX_ID_STEP)));
  return {
    ...state,
    device,
    formers: [...state.formers.slice(1 - MAX_FORMERS), { device: state.device, last, isKept }],
  };
}

export const deviceOf = (state: ReplicaState): bigint => fromHex(state.device);

/** The log's declaration of a collection is not this program's. */
export function mismatch(name: string, theirs: string, mine: string): KvError {
  const [there, here] = [theirs, mine].map(
    (text) => JSON.parse(text) as { readonly key: string; readonly value: string },
  );
  const code = there?.key === here?.key && there?.value === here?.value ? 'KV_REPLICATION_MODE' : 'KV_CODEC_MISMATCH';
  return new KvError(
    code,
    `collection ${JSON.stringify(name)} is replicated as ${theirs}, and opened here as ${mine}: give it the codecs and modes that it has on the other devices, or give the data another name. Nothing that is pending here is lost`,
  );
}
