// Snapshots of the base in the object store, so that the log can be cut off before them.
//
// A snapshot is a sequence of blocks: length u32, CRC-32C u32, bytes, which are sealed if records
// are. The first block is the header, the last one says how many rows there were.
import { KvError } from '../base/errors.ts';
import { isSnapshotLost } from '../base/superseded.ts';
import type { Snapshot, Transaction } from '../types/index.ts';
import { OFFLINE_LIMIT_MS, partOf, putBase, settle } from './apply.ts';
import type { RawConflict } from './apply.ts';
import { ByteSink, ByteSource, compareBytes, crc32c, fromHex } from './bytes.ts';
import { toHlc } from './clock.ts';
import { Model } from './model.ts';
import type { Change } from './model.ts';
import { isRead } from './record.ts';
import type { KeyBound } from './record.ts';
import { isTruncated, logUnavailable } from './remote-log.ts';
import type { Position, RemoteLog, SnapshotStore } from './remote-log.ts';
import { NOTHING_APPLIED, copyOf, decodeOutbox, decodeOverlay, decodeStamp, decodeStampHead, encodeStamp, follow, isDeadStamp, stampInEpoch } from './rows.ts';
import type { AppliedRow, Cursor, SyncState } from './rows.ts';
import { randomId, withNewId } from './tables.ts';
import type { Bytes, Table, Tables } from './tables.ts';
import type { Unread } from './unread.ts';
import type { Wire } from './wire.ts';

/** What the manifest says. */
export interface Manifest {
  readonly version: 1;
  /** The snapshot has everything up to this position. */
  readonly position: number;
  readonly key: string;
  /** Records up to this position are removed, or are about to be. */
  readonly purged: number;
}

export interface SnapshotHeader {
  readonly version: 1;
  readonly cursor: Cursor;
  readonly highTime: number;
  readonly hlc: string;
  readonly fence: string | undefined;
  readonly applied: readonly (readonly [device: string, last: AppliedRow])[];
}

export interface SnapshotContext {
  readonly tables: Tables;
  readonly log: RemoteLog;
  readonly store: SnapshotStore;
  readonly wire: Wire;
  readonly now: () => number;
}

const BLOCK_BYTES = 64 << 10;
const COLLECTION = 1;
const ROW = 2;
const EXPIRED_ROW = 3;
const CHUNK_ROW = 4;
const END = 5;
/** Tombstones outlive the offline limit by a week, for servers' clocks that disagree. */
const MARGIN_MS = 7 * 24 * 3600 * 1000;
const ATTEMPTS = 5;
const REVISION_DIGITS = 16;

const utf8 = new TextEncoder();
const text = new TextDecoder();
const about = (key: string, index: number): Uint8Array => utf8.encode(`${key}|${index}`);

export async function readManifest(log: RemoteLog, wire: Wire): Promise<{ readonly revision: number; readonly content: Manifest } | undefined> {
  const found = await log.manifest();
  if (found === undefined) return undefined;
  const content = JSON.parse(text.decode(await wire.open(found.manifest, utf8.encode('manifest')))) as Manifest;
  if (content.version !== 1) throw new KvError('KV_VERSION_UNSUPPORTED', `the log's manifest has version ${String(content.version)}: update the package`);
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
    cancel: () => void blocks.return(undefined),
  });
}

/** The base has keys with local writes over them: it cannot be read as a whole now. */
class Busy extends Error {}

export async function writeSnapshot(context: SnapshotContext & { readonly lock: <T>(work: () => Promise<T>) => Promise<T> }, signal?: AbortSignal): Promise<{ readonly position: number } | undefined> {
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
      const reason = [error, (error as { cause?: unknown }).cause].find((each) => each instanceof Busy || isSnapshotLost(each));
      if (reason === undefined) throw error;
      if (attempt === ATTEMPTS) throw isSnapshotLost(reason) ? reason : new KvError('KV_LOG_UNAVAILABLE', 'sync.compact found writes that the log has not confirmed, at every attempt; call it when fewer are made', { retryable: true });
      continue;
    }
    const position = state.cursor?.position ?? 0;
    if (position === 0 || (previous !== undefined && previous.content.position >= position)) {
      await store.delete(key);
      return undefined;
    }
    // Devices may still be reading the previous snapshot and what follows it. The record at its
    // position stays: devices recognize the history by it.
    const purged = Math.max((previous?.content.position ?? 0) - 1, previous?.content.purged ?? 0, 0);
    const manifest: Manifest = { version: 1, position, key, purged };
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
      if (other !== key && other !== previous?.content.key && baseOf(other) < revision) await store.delete(other);
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

async function* snapshotBlocks(context: SnapshotContext & { readonly lock: <T>(work: () => Promise<T>) => Promise<T> }, key: string, into: { cursor?: Cursor }): AsyncGenerator<Uint8Array, undefined> {
  const { tables, wire, now } = context;
  const snapshot = await context.lock(async () => tables.db.snapshot());
  try {
    const state = await snapshot.collection(tables.state).get('state');
    if (state === undefined || await snapshot.collection(tables.outbox).size > 0) throw new Busy();
    into.cursor = state.cursor;
    let index = 0;
    const block = async (bytes: Uint8Array): Promise<Uint8Array> => frame(await wire.seal(bytes, about(key, index++)));
    const { cursor, highTime, hlc, fence } = state;
    const applied = await snapshot.collection(tables.applied).entries().toArray();
    const header: SnapshotHeader = { version: 1, cursor, highTime, hlc, fence, applied };
    yield await block(utf8.encode(JSON.stringify(header)));
    let sink = new ByteSink();
    let rows = 0;
    for await (const [[device, seq], part] of snapshot.collection(tables.chunks).entries()) {
      yield await block(sink.u8(CHUNK_ROW).text(device).uv(seq).bytes(part).done());
      sink = new ByteSink();
    }
    const horizon = toHlc(highTime - OFFLINE_LIMIT_MS - MARGIN_MS);
    for (const table of [...tables.byName.values()].sort((a, b) => compareBytes(utf8.encode(a.name), utf8.encode(b.name)))) {
      if (await hasLocalWrites(snapshot, table)) throw new Busy();
      sink.u8(COLLECTION).text(table.name);
      const data = snapshot.collection(table.data);
      for await (const { key: rowKey, value, version } of snapshot.collection(table.stamps).entries({ meta: true })) {
        const stamp = decodeStamp(value);
        if (stamp.isDead && stamp.h < horizon) continue;
        const entry = await data.getEntry(rowKey);
        const isExpired = stamp.expiresAt !== 0 && stamp.expiresAt <= now();
        if (entry === undefined ? !stamp.isDead && !isExpired : entry.version !== (stamp.dataVersion || version)) throw new Busy();
        rows++;
        sink.u8(entry === undefined && !stamp.isDead ? EXPIRED_ROW : ROW).bytes(rowKey).bytes(encodeStamp({ ...stamp, dataVersion: 0, epoch: 0 }));
        if (entry !== undefined) sink.bytes(entry.value);
        if (sink.length < BLOCK_BYTES) continue;
        yield await block(sink.done());
        sink = new ByteSink();
      }
    }
    yield await block(sink.u8(END).uv(rows).done());
    return undefined;
  } finally {
    await snapshot.close();
  }
}

async function hasLocalWrites(snapshot: Snapshot, { modes, overlay }: Table): Promise<boolean> {
  if (!modes.has('merge')) return false;
  const rows = snapshot.collection(overlay);
  if (!modes.has('strict')) return await rows.size > 0;
  for await (const key of rows.keys()) if (!modes.isStrict(key)) return true;
  return false;
}

interface LoadContext extends SnapshotContext {
  /** See `ReplicaOptions.isCopy`. */
  readonly isCopy: boolean;
  /** See `Parts.unread`. */
  readonly unread: (version: number) => Promise<Unread>;
  readonly change: <T>(work: (tx: Transaction, state: SyncState) => Promise<{ readonly state: SyncState; readonly result: T }>) => Promise<T>;
  readonly conflicts: (conflicts: readonly RawConflict[]) => void;
  /** Begins to put back lost history. */
  readonly rejoin: (tx: Transaction, state: SyncState) => Promise<SyncState>;
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
      if (!await fill(8 + length)) throw damaged(key);
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
  if (header.version !== 1) throw new KvError('KV_VERSION_UNSUPPORTED', `snapshot ${key} has version ${String(header.version)}: update the package`);
  return header;
}

/** A snapshot's bytes as they are in the store, each block checked and opened; `onHeader` gets the header first. */
export async function* copyBlocks(stream: ReadableStream<Uint8Array>, wire: Wire, key: string, onHeader: (header: SnapshotHeader) => void): AsyncGenerator<Uint8Array, undefined> {
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

const damaged = (key: string): KvError => new KvError('KV_CORRUPT', `snapshot ${key} in the object store is damaged or cut off`);

const NO_BYTES = new Uint8Array(0);

/** Views of a block. */
interface SnapshotRow {
  readonly key: Bytes;
  readonly stamp: Bytes;
  /** Undefined: deleted. Of an expired entry, no bytes. */
  readonly value: Bytes | undefined;
}

/** Makes the newest snapshot the base, in slices, and continues after its position. */
export async function loadSnapshot(context: LoadContext): Promise<void> {
  const { tables, log, store, wire } = context;
  const manifest = await readManifest(log, wire);
  if (manifest === undefined) throw logUnavailable('the log was cut off, and the server that was asked has no manifest that names a snapshot');
  const { key } = manifest.content;
  const stream = await store.get(key);
  if (stream === undefined) throw logUnavailable(`the object store has no ${key}, which the log's manifest names`);
  let header: SnapshotHeader | undefined;
  /** Rows written after this position may not be in the log any more. */
  let doubtful = Infinity;
  let table: Table | undefined;
  /** Rows up to here are loaded; undefined: none. */
  let after: Bytes | undefined;
  let [rows, isEnded] = [0, false];
  const seen = new Set<string>();
  const chunks: { device: string; seq: number; part: Bytes }[] = [];
  const finishTable = async (): Promise<void> => {
    if (table !== undefined) await loadSlice(context, table, [], after, undefined, doubtful);
  };
  for await (const block of readBlocks(stream, wire, key)) {
    if (header === undefined) {
      header = readHeader(block, key);
      if (!context.isCopy) doubtful = await findLoss(context, manifest.content, header.cursor);
      continue;
    }
    const source = new ByteSource(block);
    let slice: SnapshotRow[] = [];
    const flush = async (): Promise<void> => {
      const last = slice.at(-1);
      if (last === undefined) return;
      if (table !== undefined) await loadSlice(context, table, slice, after, last.key, doubtful);
      after = last.key;
      slice = [];
    };
    while (source.left > 0) {
      const kind = source.u8();
      if (kind === COLLECTION) {
        await flush();
        await finishTable();
        const name = source.text();
        seen.add(name);
        [table, after] = [tables.find(name), undefined];
      } else if (kind === ROW || kind === EXPIRED_ROW) {
        const [rowKey, stamp] = [source.raw(source.uv()), source.raw(source.uv())];
        const previous = slice.at(-1)?.key ?? after;
        if (previous !== undefined && compareBytes(previous, rowKey) >= 0) throw damaged(key);
        slice.push({ key: rowKey, stamp, value: isDeadStamp(stamp) ? undefined : kind === ROW ? source.raw(source.uv()) : NO_BYTES });
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
  await finishTable();
  for (const [name, other] of tables.byName) if (!seen.has(name)) await loadSlice(context, other, [], undefined, undefined, doubtful);
  const cursor = doubtful === Infinity ? header.cursor : { ...header.cursor, position: doubtful };
  await finish(context, { ...header, cursor }, chunks);
}

/**
 * Whether the log still has the record at which the snapshot was taken. If not, the servers lost what
 * the snapshot has: it is put back, and the log is read from where it begins.
 */
async function findLoss(context: LoadContext, { key, purged }: Manifest, cursor: Cursor): Promise<number> {
  const there = await context.log.at(cursor.position).catch((error: unknown) => {
    if (!isTruncated(error)) throw error;
    throw logUnavailable('the snapshot is older than what the log begins with', error);
  });
  if (isRead(cursor, there)) return Infinity;
  if ((await readManifest(context.log, context.wire))?.content.key !== key) throw logUnavailable('the snapshot was replaced while it was read');
  await context.change(async (tx, state) => ({ state: state.rejoin === 'lost' ? state : await context.rejoin(tx, state), result: undefined }));
  return purged;
}

/** The rows of a slice take the place of what the base has after one key and up to another. */
async function loadSlice(context: LoadContext, table: Table, rows: readonly SnapshotRow[], after: Bytes | undefined, last: Bytes | undefined, doubtful: number): Promise<void> {
  const { tables } = context;
  const now = context.now();
  await context.change(async (tx, state) => {
    const model = new Model(tx, tables, now, await context.unread(await tx.baseVersion));
    const lower: KeyBound = after && { bytes: after, isExclusive: true };
    const upper: KeyBound = last && { bytes: last, isExclusive: false };
    const epochOf = (position: Position): number => (position > doubtful ? state.epoch - 1 : state.epoch);
    if (await model.isBare(table, lower, upper)) {
      await model.write(bareRows(table, rows, now, epochOf));
      return { state: rows.length > 0 ? { ...state } : state, result: undefined };
    }
    await model.loadRange(table, lower, upper, rows.map(({ key }) => key));
    const listed = new Set<unknown>();
    for (const { key, stamp: stampBytes, value: bytes } of rows) {
      const row = model.row(table, key);
      const stamp = decodeStamp(stampBytes);
      const value = bytes === undefined ? null : { value: bytes, expiresAt: stamp.expiresAt };
      listed.add(row);
      const mine = row.stamp;
      const order = mine === undefined ? -1 : mine.h !== stamp.h ? (mine.h < stamp.h ? -1 : 1) : mine.device !== stamp.device ? (mine.device < stamp.device ? -1 : 1) : 0;
      // While lost history is put back, the greater stamp wins; otherwise the snapshot is right.
      if (order > 0 && state.rejoin !== undefined && mine?.epoch !== state.epoch) continue;
      row.setStamp({ ...stamp, epoch: epochOf(stamp.position) });
      if (order !== 0 || !row.isClean) putBase(row, value, now);
    }
    for (const row of model.within(table, lower, upper)) {
      if (listed.has(row) || row.stamp === undefined) continue;
      if (state.rejoin === undefined || row.stamp.epoch === state.epoch) row.forget();
    }
    await model.save();
    return { state: { ...state }, result: undefined };
  });
}

/** The rows where there is nothing, as the model would write them, in a third of the time. */
function* bareRows(table: Table, rows: readonly SnapshotRow[], now: number, epochOf: (position: Position) => number): Iterable<Change> {
  for (const { key, stamp, value } of rows) {
    const head = decodeStampHead(stamp);
    yield { rows: table.stamps, key, value: { value: stampInEpoch(stamp, head, epochOf(head.position)), expiresAt: 0 } };
    const { expiresAt } = head;
    if (value === undefined || (expiresAt !== 0 && expiresAt <= now)) continue;
    const entry = { value, expiresAt };
    yield { rows: table.data, key, value: entry };
    if (table.modes.isStrict(key)) yield { rows: table.overlay, key, value: { value: copyOf(entry), expiresAt: 0 } };
  }
}

async function finish(context: LoadContext, header: SnapshotHeader, chunks: readonly { device: string; seq: number; part: Bytes }[]): Promise<void> {
  const { tables } = context;
  const now = context.now();
  const conflicts = await context.change(async (tx, state) => {
    const [applied, parts] = [tx.collection(tables.applied), tx.collection(tables.chunks)];
    const known = await applied.get(state.device) ?? NOTHING_APPLIED;
    await applied.clear();
    await applied.setMany(header.applied);
    await parts.clear();
    await parts.setMany(chunks.map(({ device, seq, part }) => [[device, seq] as const, part] as const));
    const found: RawConflict[] = [];
    const last = header.applied.find(([device]) => device === state.device)?.[1] ?? known;
    const isOwn = await confirm(tx, tables, state, known, last, now, await context.unread(await tx.baseVersion), found);
    const hlc = fromHex(header.hlc) > fromHex(state.hlc) ? header.hlc : state.hlc;
    const { cursor, fence } = header;
    const next = { ...(isOwn ? state : withNewId(state)), cursor, fence, hlc, highTime: header.highTime };
    return { state: next, result: found };
  });
  if (conflicts.length > 0) context.conflicts(conflicts);
}

/**
 * Takes from the outbox what came into the log before the snapshot: this device's records after
 * `known` and up to `last`. False if they are not its own: then all of it stays there, since nobody
 * can tell which of it is in the log. Sent again, it loses to what was written since.
 */
async function confirm(tx: Transaction, tables: Tables, { offset }: SyncState, known: AppliedRow, last: AppliedRow, now: number, unread: Unread, found: RawConflict[]): Promise<boolean> {
  if (last[0] === known[0] && last[1] === known[1]) return true;
  if (offset === undefined) return false;
  const outbox = tx.collection(tables.outbox);
  let mine = known;
  while (mine[0] < last[0]) {
    const seq = mine[0] + 1;
    const row = await outbox.get(seq + offset);
    if (row === undefined) return false;
    mine = follow(mine, seq, decodeOutbox(row).body);
  }
  if (mine[0] !== last[0] || mine[1] !== last[1]) return false;
  const newest = await outbox.get(last[0] + offset);
  const { index, left } = newest === undefined ? { index: 0, left: 0 } : partOf(decodeOutbox(newest));
  // Of a transaction that is not whole in the log all parts stay.
  const ticket = last[0] + offset - (left > 0 ? index + 1 : 0);
  await outbox.clear({ lte: ticket });
  await settleAll(tx, tables, ticket, now, unread, found);
  return true;
}

async function settleAll(tx: Transaction, tables: Tables, ticket: number, now: number, unread: Unread, found: RawConflict[]): Promise<void> {
  const model = new Model(tx, tables, now, unread);
  for (const table of tables.byName.values()) {
    if (!table.modes.has('merge')) continue;
    for await (const [key, bytes] of tx.collection(table.overlay).entries()) {
      if (table.modes.isStrict(key)) continue;
      const overlay = decodeOverlay(bytes);
      if (overlay.ticket === 0 || overlay.ticket > ticket) continue;
      await model.load([{ table, key }]);
      settle(model.row(table, key), ticket, now, (mine, theirs) => found.push({ collection: table.name, key, mine, theirs }));
    }
  }
  await model.save();
}

