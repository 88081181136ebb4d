// Snapshots of the base in the object store, so that the log can be cut off before them.
//
// A snapshot is a sequence of blocks: length u32, CRC-32C u32, bytes, which are sealed if records
// are. The first block is the header, the last one says how many rows there were.
import { isSnapshotLost, TextDecoder, TextEncoder } from 'mangrove-kv/internal';
import { KvError } from 'mangrove-kv';
import type { Transaction } from 'mangrove-kv';
import type { RawConflict } from './apply.ts';
import { ByteSink, ByteSource, compareBytes, crc32c, fromHex } from './bytes.ts';
import { toHlc } from './clock.ts';
import { OFFLINE_LIMIT_MS } from './fold.ts';
import type { FoundConflict } from './fold.ts';
import { Model, replaceDigest } from './model.ts';
import type { Change } from './model.ts';
import { partOf, wholeBody } from './outbox.ts';
import type { Work } from './replica-context.ts';
import { INCOMPLETE, decodeBody, isRead } from './record.ts';
import type { KeyBound, RecordBody } from './record.ts';
import { isTruncated, logUnavailable } from './remote-log.ts';
import type { RemoteLog, SnapshotStore } from './remote-log.ts';
import { ABSENT, checkOfBytes, decodeRow, encodeBase, encodeRow, readBase } from './row.ts';
import type { Base } from './row.ts';
import { NOTHING_APPLIED, decodeOutbox, follow } from './state.ts';
import type { AppliedRow, Cursor, Digest, OutboxRow, ReplicaState } from './state.ts';
import { mismatch, randomId, withNewId } from './tables.ts';
import type { Bytes, Table, Tables } from './tables.ts';
import type { Wire } from './wire.ts';

/** What the manifest says. */
export interface Manifest {
  readonly version: 1;
  /** The last record that the snapshot has. */
  readonly cursor: Cursor;
  readonly key: string;
  /** Records up to this position are removed, or are about to be. */
  readonly purged: number;
  /** Key of the snapshot before: the base of those who find that the log has lost this one's record. */
  readonly previous?: string | undefined;
}

export interface SnapshotHeader {
  readonly version: 1;
  readonly cursor: Cursor;
  readonly time: number;
  readonly hlc: string;
  readonly declared: { readonly [name: string]: string };
  readonly digests: { readonly [name: string]: Digest };
  readonly applied: readonly (readonly [device: string, last: AppliedRow])[];
}

export interface SnapshotContext {
  readonly tables: Tables;
  readonly log: RemoteLog;
  readonly store: SnapshotStore;
  readonly wire: Wire;
}

const BLOCK_BYTES = 64 << 10;
const COLLECTION = 1;
const ROW = 2;
const CHUNK_ROW = 3;
const END = 4;
/** Tombstones outlive the offline limit by a week, for servers' clocks that disagree. */
const MARGIN_MS = 7 * 24 * 3600 * 1000;
const ATTEMPTS = 5;
const REVISION_DIGITS = 16;

const utf8 = new TextEncoder();
const text = new TextDecoder();
const about = (key: string, index: number): Uint8Array => utf8.encode(`${key}|${index}`);

export async function readManifest(
  log: RemoteLog,
  wire: Wire,
): Promise<{ readonly revision: number; readonly content: Manifest } | undefined> {
  const found = await log.manifest();
  if (found === undefined) return undefined;
  const content = JSON.parse(text.decode(await wire.open(found.manifest, utf8.encode('manifest')))) as Manifest;
  if (content.version !== 1)
    throw new KvError(
      'KV_VERSION_UNSUPPORTED',
      `the log's manifest has version ${String(content.version)}: update the package`,
    );
  return { revision: found.revision, content };
}

export async function sealManifest(wire: Wire, manifest: Manifest): Promise<Uint8Array> {
  return wire.seal(utf8.encode(JSON.stringify(manifest)), utf8.encode('manifest'));
}

export function streamOf(blocks: AsyncGenerator<Uint8Array, undefined>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const step = await blocks.next();
      if (step.done) controller.close();
      else controller.enqueue(step.value);
    },
    cancel: async () => void (await blocks.return(undefined)),
  });
}

/** Whether there is nothing in the log that the newest snapshot lacks. */
export async function isCompact(
  { log, store, wire }: Pick<SnapshotContext, 'log' | 'store' | 'wire'>,
  { cursor }: ReplicaState,
): Promise<boolean> {
  const manifest = (await readManifest(log, wire))?.content;
  return (
    manifest !== undefined &&
    manifest.cursor.position >= cursor.position &&
    (await hasRecord(log, manifest.cursor)) &&
    (await store.list(manifest.key)).includes(manifest.key)
  );
}

/** Whether the log has lost what the newest snapshot has. */
export async function isSnapshotOfLost({ log, wire }: Pick<SnapshotContext, 'log' | 'wire'>): Promise<boolean> {
  const manifest = (await readManifest(log, wire))?.content;
  return manifest !== undefined && !(await hasRecord(log, manifest.cursor));
}

/** Whether the log has, or had, the record at which a snapshot was taken: otherwise it has lost that. */
async function hasRecord(log: RemoteLog, cursor: Cursor): Promise<boolean> {
  try {
    return isRead(cursor, await log.at(cursor.position));
  } catch (error) {
    if (!isTruncated(error)) throw error;
    return true;
  }
}

/** The base has keys with local writes over them: it cannot be read as a whole now. */
class Busy extends Error {}

export async function writeSnapshot(
  context: SnapshotContext & { readonly lock: <T>(work: () => Promise<T>) => Promise<T> },
  signal?: AbortSignal,
): Promise<{ readonly position: number } | undefined> {
  const { log, store, wire } = context;
  const previous = await readManifest(log, wire);
  // Databases may share the store: each has a folder, which its first snapshot names.
  const folder = /^snapshot\/[^/]+\//.exec(previous?.content.key ?? '')?.[0] ?? `snapshot/${randomId()}/`;
  const base = previous?.revision ?? 0;
  const key = `${folder}${String(base).padStart(REVISION_DIGITS, '0')}-${randomId()}`;
  for (let attempt = 1; ; attempt++) {
    const state: { cursor?: Cursor } = {};
    try {
      const blocks = snapshotBlocks(context, key, state);
      await store.put(key, streamOf(blocks), signal);
    } catch (error) {
      const reason = [error, (error as { cause?: unknown }).cause].find(
        (each) => each instanceof Busy || isSnapshotLost(each),
      );
      if (reason === undefined) throw error;
      if (attempt === ATTEMPTS)
        throw isSnapshotLost(reason)
          ? reason
          : new KvError(
              'KV_LOG_UNAVAILABLE',
              'replication.compact found writes that the log has not confirmed, at every attempt; call it when fewer are made',
              { retryable: true },
            );
      continue;
    }
    const { cursor = { position: 0, serverTime: 0, crc: 0 } } = state;
    const { position } = cursor;
    const isKept = previous !== undefined && (await hasRecord(log, previous.content.cursor));
    if (position === 0 || (isKept && previous.content.cursor.position >= position)) {
      await store.delete(key);
      return undefined;
    }
    // Devices may still be reading the previous snapshot and what follows it. The record at its
    // position stays: devices recognize the history by it. One that the log has lost is no base of
    // anything: the one before it still is.
    const purged = Math.max(isKept ? previous.content.cursor.position - 1 : 0, previous?.content.purged ?? 0);
    const older = isKept ? previous.content.key : previous?.content.previous;
    const manifest: Manifest = { version: 1, cursor, key, purged, previous: older };
    let revision: number;
    try {
      revision = await log.replaceManifest(base, await sealManifest(wire, manifest));
    } catch (error) {
      if ((error as Partial<KvError>).code === 'KV_LOG_CONFLICT') {
        // The manifest that is read may be an older one; then the next compaction deletes this snapshot.
        const current = await readManifest(log, wire);
        if (current !== undefined && current.revision > base && current.content.key !== key) await store.delete(key);
      }
      throw error;
    }
    // A later compaction does what is left.
    if ((await readManifest(log, wire))?.content.key !== key) return { position };
    if (purged > 0) await log.purge(purged);
    for (const other of await store.list(folder)) {
      if (other !== key && other !== older && baseOf(other) < revision) await store.delete(other);
    }
    return { position };
  }
}

/**
 * The revision of the manifest that a snapshot is to replace. Below the current one, no manifest will
 * ever name the snapshot: a compaction that sleeps here deletes nothing that others write meanwhile.
 */
function baseOf(key: string): number {
  return Number(new RegExp(`/(\\d{${REVISION_DIGITS}})-[^/]+$`).exec(key)?.[1] ?? 0);
}

async function* snapshotBlocks(
  context: SnapshotContext & { readonly lock: <T>(work: () => Promise<T>) => Promise<T> },
  key: string,
  into: { cursor?: Cursor },
): AsyncGenerator<Uint8Array, undefined> {
  const { tables, wire } = context;
  const snapshot = await context.lock(async () => tables.db.snapshot());
  try {
    const state = await snapshot.collection(tables.state).get('state');
    if (state !== undefined) checkFit(state);
    if (state === undefined || state.rejoin !== undefined || (await snapshot.collection(tables.outbox).size) > 0)
      throw new Busy();
    into.cursor = state.cursor;
    let index = 0;
    const block = async (bytes: Uint8Array): Promise<Uint8Array> => frame(await wire.seal(bytes, about(key, index++)));
    const { cursor, time, hlc, declared, digests } = state;
    const applied = await snapshot.collection(tables.applied).entries().toArray();
    const header: SnapshotHeader = { version: 1, cursor, time, hlc, declared, digests, applied };
    yield await block(utf8.encode(JSON.stringify(header)));
    let sink = new ByteSink();
    let rows = 0;
    for await (const [[device, seq], part] of snapshot.collection(tables.chunks).entries()) {
      yield await block(sink.u8(CHUNK_ROW).text(device).uv(seq).bytes(part).done());
      sink = new ByteSink();
    }
    const horizon = toHlc(time - OFFLINE_LIMIT_MS - MARGIN_MS);
    for (const name of Object.keys(declared).sort((a, b) => compareBytes(utf8.encode(a), utf8.encode(b)))) {
      const table = tables.table(name, declared[name] as string);
      sink.u8(COLLECTION).text(name);
      const data = snapshot.collection(tables.entriesOf(table));
      let digest: Digest = [0, 0];
      for await (const [rowKey, bytes] of snapshot.collection(table.rows).entries()) {
        const { base, pending, shown } = decodeRow(bytes);
        if (pending !== undefined) throw new Busy();
        if (base === undefined) continue;
        const { stamp } = base;
        if (stamp.isDead && stamp.h < horizon) continue;
        const value =
          stamp.isDead || shown !== undefined || base.kept !== undefined ? base.kept : await data.get(rowKey);
        // Otherwise the application has written it, and that is not in the outbox yet.
        if (!stamp.isDead && (value === undefined || checkOfBytes(value) !== stamp.check)) throw new Busy();
        digest = replaceDigest(digest, rowKey, undefined, base);
        rows++;
        sink
          .u8(ROW)
          .bytes(rowKey)
          .bytes(encodeBase({ stamp, kept: value }));
        if (sink.length < BLOCK_BYTES) continue;
        yield await block(sink.done());
        sink = new ByteSink();
      }
      checkDigest(name, digest, digests[name], 'rows in this database');
    }
    yield await block(sink.u8(END).uv(rows).done());
    return undefined;
  } finally {
    await snapshot.close();
  }
}

/** What lacks something that the log has must not take the place of the log. */
export function checkFit({ aside, diverged }: ReplicaState): void {
  if (aside === INCOMPLETE)
    throw new KvError(
      'KV_NOT_FOUND',
      'replication.compact: the object store lacks large values of the log, and what this device would write lacks their records; start replication again once they are there, or let a device compact that has them',
    );
  if (aside !== undefined)
    throw new KvError(
      'KV_VERSION_UNSUPPORTED',
      'replication.compact: the log has records that this version of the package does not understand, and what it would write lacks them; compact with a newer one',
    );
  if (diverged !== undefined)
    throw new KvError(
      'KV_REPLICATION_DIVERGED',
      `replication.compact: this database is not what another device had at position ${diverged} of the log: let that one compact`,
    );
}

function checkDigest(name: string, [count, sum]: Digest, expected: Digest | undefined, what: string): void {
  const [expectedCount, expectedSum] = expected ?? [0, 0];
  if (count === expectedCount && sum === expectedSum) return;
  throw new KvError(
    'KV_CORRUPT',
    `the ${what} of collection ${JSON.stringify(name)} have the digest ${count}:${sum}, and the records of the log make ${expectedCount}:${expectedSum}`,
  );
}

interface LoadContext extends SnapshotContext {
  /** See `ReplicaOptions.isCopy`. */
  readonly isCopy: boolean;
  /** See `Advance`. */
  readonly change: <T>(work: Work<T>) => Promise<T>;
  /** Keeps them until they are resolved. */
  readonly keepConflicts: (tx: Transaction, state: ReplicaState, conflicts: readonly RawConflict[]) => Promise<void>;
  readonly conflicts: (conflicts: readonly RawConflict[]) => void;
  /** Begins to read the log anew. */
  readonly rejoin: (tx: Transaction, state: ReplicaState, kind: 'lost' | 'reread') => Promise<ReplicaState>;
}

/** Cuts a stream into sealed blocks, whose checksums it compares. */
async function* readSealed(stream: ReadableStream<Uint8Array>, key: string): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let have = new Uint8Array(0);
  const fill = async (length: number): Promise<boolean> => {
    while (have.length < length) {
      const { done, value } = await reader.read();
      if (done) return false;
      const more = new Uint8Array(have.length + value.length);
      more.set(have);
      more.set(value, have.length);
      have = more;
    }
    return true;
  };
  try {
    while (await fill(8)) {
      const view = new DataView(have.buffer, have.byteOffset);
      const [length, crc] = [view.getUint32(0), view.getUint32(4)];
      if (!(await fill(8 + length))) throw damaged(key);
      const bytes = have.slice(8, 8 + length);
      have = have.subarray(8 + length);
      if (crc32c(bytes) !== crc) throw damaged(key);
      yield bytes;
    }
    if (have.length > 0) throw damaged(key);
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/** Reads the blocks of a stream, checked and opened. */
async function* readBlocks(stream: ReadableStream<Uint8Array>, wire: Wire, key: string): AsyncGenerator<Uint8Array> {
  let index = 0;
  for await (const sealed of readSealed(stream, key)) yield await wire.open(sealed, about(key, index++));
}

function readHeader(block: Uint8Array, key: string): SnapshotHeader {
  const header = JSON.parse(text.decode(block)) as SnapshotHeader;
  if (header.version !== 1)
    throw new KvError(
      'KV_VERSION_UNSUPPORTED',
      `snapshot ${key} has version ${String(header.version)}: update the package`,
    );
  return header;
}

/** A snapshot's bytes as they are in the store, each block checked and opened; `onHeader` gets the header first. */
export async function* copyBlocks(
  stream: ReadableStream<Uint8Array>,
  wire: Wire,
  key: string,
  onHeader: (header: SnapshotHeader) => void,
): AsyncGenerator<Uint8Array, undefined> {
  let index = 0;
  for await (const sealed of readSealed(stream, key)) {
    const block = await wire.open(sealed, about(key, index));
    if (index++ === 0) onHeader(readHeader(block, key));
    yield frame(sealed);
  }
  if (index === 0) throw damaged(key);
  return undefined;
}

function frame(sealed: Uint8Array): Uint8Array {
  const head = new Uint8Array(8);
  new DataView(head.buffer).setUint32(0, sealed.length);
  new DataView(head.buffer).setUint32(4, crc32c(sealed));
  return new ByteSink().raw(head).raw(sealed).done();
}

const damaged = (key: string): KvError =>
  new KvError('KV_CORRUPT', `snapshot ${key} in the object store is damaged or cut off`);

/** A row of a snapshot. */
interface SnapshotRow {
  readonly key: Bytes;
  readonly base: Base;
}

/**
 * Makes the newest snapshot the base, in slices, and continues after its position. If the log has lost the
 * record there, the base begins with the snapshot before, or with the log, like that of devices which
 * stayed before the loss; what the newest one has is put back at the log's end.
 */
export async function loadSnapshot(context: LoadContext): Promise<void> {
  const { log, wire } = context;
  const manifest = (await readManifest(log, wire))?.content;
  if (manifest === undefined)
    throw logUnavailable('the log was cut off, and the server that was asked has no manifest that names a snapshot');
  let isLost = false;
  const newest = await readSnapshot(context, manifest.key, async (header) => {
    isLost = !context.isCopy && (await isGone(context, manifest, header.cursor));
    await begin(context, header, isLost);
    return isLost;
  });
  if (!isLost) return finish(context, newest);
  let isBefore = false;
  const before =
    manifest.previous === undefined
      ? undefined
      : await readSnapshot(context, manifest.previous, async ({ cursor }) => {
          isBefore = !(await isGone(context, manifest, cursor));
          return !isBefore;
        });
  if (before !== undefined && isBefore) return finish(context, before);
  await context.change(async (_, state) => ({
    state: { ...state, cursor: { position: manifest.purged, serverTime: 0, crc: 0 }, isLoading: false },
    result: undefined,
  }));
}

interface ReadSnapshot {
  readonly header: SnapshotHeader;
  readonly chunks: readonly { readonly device: string; readonly seq: number; readonly part: Bytes }[];
}

/** Loads the rows of a snapshot. `onHeader` tells whether the log has lost what they are of. */
async function readSnapshot(
  context: LoadContext,
  key: string,
  onHeader: (header: SnapshotHeader) => Promise<boolean>,
): Promise<ReadSnapshot> {
  const { tables, store, wire } = context;
  const stream = await store.get(key);
  if (stream === undefined) throw logUnavailable(`the object store has no ${key}, which the log's manifest names`);
  let header: SnapshotHeader | undefined;
  let table: Table | undefined;
  /** Rows up to here are loaded; undefined: none. */
  let after: Bytes | undefined;
  let [rows, isEnded, isLost] = [0, false, false];
  const chunks: { device: string; seq: number; part: Bytes }[] = [];
  for await (const block of readBlocks(stream, wire, key)) {
    if (header === undefined) {
      header = readHeader(block, key);
      checkDeclared(tables, header);
      isLost = await onHeader(header);
      continue;
    }
    const source = new ByteSource(block);
    let slice: SnapshotRow[] = [];
    const flush = async (): Promise<void> => {
      const last = slice.at(-1);
      if (last === undefined) return;
      if (table !== undefined) await loadSlice(context, table, slice, after, last.key, isLost);
      after = last.key;
      slice = [];
    };
    while (source.left > 0) {
      const kind = source.u8();
      if (kind === COLLECTION) {
        await flush();
        const name = source.text();
        const declaration = header.declared[name];
        if (declaration === undefined) throw damaged(key);
        [table, after] = [tables.table(name, declaration), undefined];
      } else if (kind === ROW) {
        const rowKey = source.raw(source.uv());
        const length = source.uv();
        const end = source.left - length;
        const base = readBase(source);
        if (source.left !== end) throw damaged(key);
        const previous = slice.at(-1)?.key ?? after;
        if (previous !== undefined && compareBytes(previous, rowKey) >= 0) throw damaged(key);
        slice.push({ key: rowKey, base });
        rows++;
      } else if (kind === CHUNK_ROW) {
        chunks.push({ device: source.text(), seq: source.uv(), part: source.bytes() });
      } else if (kind === END) {
        await flush();
        isEnded = source.uv() === rows;
      } else throw damaged(key);
    }
    await flush();
  }
  if (header === undefined || !isEnded) throw damaged(key);
  return { header, chunks };
}

/** This program would take the bytes of others for something else. */
function checkDeclared(tables: Tables, { declared }: SnapshotHeader): void {
  for (const { name, declaration } of tables.byName.values()) {
    const theirs = declared[name];
    if (theirs !== undefined && theirs !== declaration) throw mismatch(name, theirs, declaration);
  }
}

/** Makes room for a base: what there is stays as the former one. */
async function begin({ tables, change, rejoin }: LoadContext, header: SnapshotHeader, isLost: boolean): Promise<void> {
  const { hlc, declared } = header;
  await change(async (tx, before) => {
    const isEmpty = before.cursor.position === 0 && !before.isLoading;
    const isRight = isEmpty && (isLost ? before.rejoin === 'lost' : true);
    const state = isRight
      ? before
      : await rejoin(
          tx,
          before,
          isLost || isOtherHistory(header, before, await tx.collection(tables.applied).entries().toArray())
            ? 'lost'
            : 'reread',
        );
    const formerlyDeclared = isLost ? { ...declared, ...state.formerlyDeclared } : state.formerlyDeclared;
    return { state: { ...state, formerlyDeclared, hlc: later(hlc, state.hlc), isLoading: true }, result: undefined };
  });
}

/**
 * Whether the log has lost records that this device has read, and has been cut off behind them since: the
 * later snapshot does not have them.
 */
function isOtherHistory(
  { cursor, applied }: SnapshotHeader,
  mine: ReplicaState,
  known: readonly (readonly [device: string, last: AppliedRow])[],
): boolean {
  if (cursor.position < mine.cursor.position) return false;
  const theirs = new Map(applied);
  return known.some(([device, [seq, chain]]) => {
    const [theirSeq, theirChain] = theirs.get(device) ?? NOTHING_APPLIED;
    return theirSeq < seq || (theirSeq === seq && theirChain !== chain);
  });
}

const later = (a: string, b: string): string => (fromHex(a) > fromHex(b) ? a : b);

/** Whether the log has lost the record at which a snapshot was taken. */
async function isGone(context: LoadContext, { key }: Manifest, cursor: Cursor): Promise<boolean> {
  const there = await context.log.at(cursor.position).catch((error: unknown) => {
    if (!isTruncated(error)) throw error;
    throw logUnavailable('the snapshot is older than what the log begins with', error);
  });
  if (isRead(cursor, there)) return false;
  if ((await readManifest(context.log, context.wire))?.content.key !== key)
    throw logUnavailable('the snapshot was replaced while it was read');
  return true;
}

/** Loads rows after one key and up to another. */
async function loadSlice(
  { tables, change }: LoadContext,
  table: Table,
  rows: readonly SnapshotRow[],
  after: Bytes | undefined,
  last: Bytes,
  isLost: boolean,
): Promise<void> {
  await change(async (tx, state) => {
    const model = new Model(tx, tables, state);
    const lower: KeyBound = after && { bytes: after, isExclusive: true };
    if (state.history === state.settled && (await model.isBare(table, lower, { bytes: last, isExclusive: false }))) {
      let digest = state.digests[table.name] ?? [0, 0];
      for (const { key, base } of rows) digest = replaceDigest(digest, key, undefined, base);
      await model.write(bareRows(model, table, rows, state));
      return { state: { ...state, digests: { ...state.digests, [table.name]: digest } }, result: undefined };
    }
    await model.load(rows.map(({ key }) => ({ table, key })));
    for (const { key, base } of rows) model.row(table, key).load(base, isLost);
    return { state: await model.save(state), result: undefined };
  });
}

/** The rows where there is nothing, as the model would write them, in a third of the time. */
function* bareRows(
  model: Model,
  table: Table,
  rows: readonly SnapshotRow[],
  { history }: ReplicaState,
): Iterable<Change> {
  for (const {
    key,
    base: { stamp, kept },
  } of rows) {
    const { isDead, expiresAt } = stamp;
    const isStale = table.data === undefined && !isDead;
    const keeps = isStale || expiresAt !== 0 || table.modes.isStrict(key);
    yield {
      rows: table.rows,
      key,
      value: {
        value: encodeRow({
          history,
          base: { stamp, kept: keeps ? kept : undefined },
          former: undefined,
          pending: undefined,
          shown: isStale ? ABSENT : undefined,
        }),
        expiresAt: 0,
      },
    };
    if (kept === undefined || isDead) continue;
    if (table.data !== undefined) yield { rows: table.data, key, value: { value: kept, expiresAt } };
    if (expiresAt !== 0) yield model.expiry(table, key, expiresAt);
  }
}

async function finish(context: LoadContext, { header, chunks }: ReadSnapshot): Promise<void> {
  const { tables } = context;
  const conflicts = await context.change(async (tx, before) => {
    const [applied, parts] = [tx.collection(tables.applied), tx.collection(tables.chunks)];
    const known = (await applied.get(before.device)) ?? NOTHING_APPLIED;
    await applied.clear();
    await applied.setMany(header.applied);
    await parts.clear();
    await parts.setMany(chunks.map(({ device, seq, part }) => [[device, seq] as const, part] as const));
    const { cursor, time, declared } = header;
    let state: ReplicaState = {
      ...before,
      cursor,
      time,
      declared,
      isLoading: false,
      diverged: cursor.position >= (before.diverged ?? 0) ? undefined : before.diverged,
    };
    for (const name of Object.keys(declared))
      checkDigest(name, state.digests[name] ?? [0, 0], header.digests[name], 'rows of a snapshot');
    const model = new Model(tx, tables, state);
    const found: FoundConflict[] = [];
    for (const { device, last } of [{ device: before.device, last: known }, ...before.formers]) {
      const there = header.applied.find(([id]) => id === device)?.[1];
      if (there === undefined) continue;
      const isOwn = await confirm(tx, tables, state, model, last, there, found);
      if (!isOwn && device === before.device) state = withNewId(state, known);
    }
    const list: RawConflict[] = [];
    for (const { row, theirs } of found)
      list.push({ collection: row.table.name, key: row.key, mine: await model.entryOf(row), theirs });
    await context.keepConflicts(tx, before, list);
    return { state: await model.save(state), result: list };
  });
  if (conflicts.length > 0) context.conflicts(conflicts);
}

/**
 * Takes from the outbox what came into the log before the snapshot: this device's records after
 * `known` and up to `last`. False if they are not its own: then all of it stays there, since nobody
 * can tell which of it is in the log. Sent again, it loses to what was written since.
 */
async function confirm(
  tx: Transaction,
  tables: Tables,
  state: ReplicaState,
  model: Model,
  known: AppliedRow,
  last: AppliedRow,
  found: FoundConflict[],
): Promise<boolean> {
  if (last[0] === known[0] && last[1] === known[1]) return true;
  const outbox = tx.collection(tables.outbox);
  const rows: (readonly [number, OutboxRow])[] = [];
  let mine = known;
  for await (const [ticket, bytes] of outbox.entries({ gt: known[0], lte: last[0] })) {
    const row = decodeOutbox(bytes);
    mine = follow(mine, ticket, row.body);
    rows.push([ticket, row]);
  }
  if (mine[0] !== last[0] || mine[1] !== last[1]) return false;
  for (const [at, [ticket, row]] of rows.entries()) {
    const { index, left } = partOf(row);
    // Of a transaction that is not whole in the log all parts stay.
    if (left > 0) continue;
    const bytes = await wholeBody(row, async (back) => {
      const earlier = rows[at - back]?.[1];
      return earlier?.body.subarray(8);
    });
    if (bytes === undefined) continue;
    await outbox.clear({ gte: ticket - index, lte: ticket });
    await settleAll(tables, state, model, decodeBody(bytes, row.flags), found);
  }
  return true;
}

async function settleAll(
  tables: Tables,
  { declared }: ReplicaState,
  model: Model,
  { n, transactions }: RecordBody,
  found: FoundConflict[],
): Promise<void> {
  for (const { ops } of transactions) {
    for (const op of ops) {
      const declaration = declared[op.collection];
      if (declaration === undefined) continue;
      const table = tables.table(op.collection, declaration);
      if (op.type === 'clear') await model.loadRange(table, op.lower, op.upper);
      else await model.load([{ table, key: op.key }]);
      const rows = op.type === 'clear' ? model.within(table, op.lower, op.upper) : [model.row(table, op.key)];
      for (const row of rows) {
        const theirs = row.settle(n);
        if (theirs !== undefined) found.push({ row, theirs });
      }
    }
  }
}
