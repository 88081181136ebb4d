// Applies records of the log: tells whose they are, joins their parts, and folds them into the base.
import { KvError } from 'mangrove-kv';
import type { Transaction } from 'mangrove-kv';
import { ByteSink, ByteSource, fromHex, toHex, toHexBytes } from './bytes.ts';
import { OFFLINE_LIMIT_MS, advance, fold, isInPlace, timeOf } from './fold.ts';
import type { FoldedRecord, FoundConflict } from './fold.ts';
import { isDeclaration, isReplicableName } from './modes.ts';
import { Model } from './model.ts';
import { partOf, readChunk, renumber, ticketOf, wholeBody } from './outbox.ts';
import { CHECK, CHUNK, FENCE, INCOMPLETE, REPAIR, UNDERSTANDING, decodeBody } from './record.ts';
import type { RecordBody, ReplicationOp } from './record.ts';
import { checkOfBytes } from './row.ts';
import type { BaseValue } from './row.ts';
import { NOTHING_APPLIED, decodeOutbox, follow } from './state.ts';
import type { AppliedRow, ReplicaState } from './state.ts';
import { mismatch, withNewId } from './tables.ts';
import type { Bytes, Table, Tables } from './tables.ts';

/** A record as it was read from the log, without seal and compression. */
export interface ReadRecord {
  readonly position: number;
  readonly serverTime: number;
  readonly crc: number;
  /** As it came from the log. */
  readonly raw: Bytes;
  /** Why it cannot be read: nothing but the cursor changes. */
  readonly unread?: KvError;
  readonly flags: number;
  readonly device: bigint;
  readonly seq: number;
  readonly back: number;
  readonly isSealed: boolean;
  /** See `LoggedRecord`. */
  readonly sender?: string | undefined;
  /** As its writer has it in the outbox. */
  readonly body: Bytes;
}

/** A write of this device lost against one that did not know it. Values are stored bytes. */
export interface RawConflict {
  readonly collection: string;
  readonly key: Bytes;
  /** Null: a delete. */
  readonly mine: BaseValue;
  readonly theirs: BaseValue;
}

export interface Applied {
  readonly conflicts: readonly RawConflict[];
  /** The id is another one now: a record under it was not this device's. Or records that the log has lost have other numbers. */
  readonly isRenumbered: boolean;
  /** Records that were missing; they were passed over. */
  readonly gaps: readonly { readonly device: string; readonly from: number; readonly to: number }[];
  /** Why records, or some of their operations, have no effect, although their checksums are right. */
  readonly refused: readonly KvError[];
  /** Tickets of this device's records that have no effect, because the servers took them at another place. */
  readonly voided: readonly number[];
  /** Position of a check that does not agree with the base. */
  readonly diverged: number | undefined;
  /** Another device became the only writer, at this time; or this one under an earlier id. */
  readonly fencedBy: bigint | undefined;
}

export interface ApplyOptions {
  /** Pass over missing records instead of failing with KV_REPLICATION_GAP. */
  readonly isGapAccepted?: boolean;
  /** Large values that were fetched, by hexadecimal hash. Gets those that entries have. */
  readonly blobs?: Map<string, Bytes> | undefined;
  /** Why large values of records cannot be had, by position. */
  readonly unusable?: ReadonlyMap<number, KvError> | undefined;
}

/** An operation with a large value. */
export type BlobOp = Extract<ReplicationOp, { readonly type: 'blob' }>;

/** Large values have to be fetched before the record can be applied. */
export class MissingBlobs extends Error {
  /** Of the record in the batch. */
  readonly index: number;
  readonly ops: readonly BlobOp[];

  constructor(index: number, ops: readonly BlobOp[]) {
    super('large values have to be fetched');
    this.index = index;
    this.ops = ops;
  }
}

/** Large values that a record refers to. */
export const blobsIn = ({ transactions }: RecordBody): BlobOp[] =>
  transactions.flatMap(({ ops }) => ops.filter((op) => op.type === 'blob') as BlobOp[]);

/** A collection that a record names, unless its declaration means nothing. */
function tableOf(tables: Tables, state: ReplicaState, { declared }: RecordBody, name: string): Table | undefined {
  const declaration = state.declared[name] ?? declared.get(name) ?? '';
  return isReplicableName(name) && isDeclaration(declaration) ? tables.table(name, declaration) : undefined;
}

/** Reads the rows that a record may change. */
async function loadWritten(model: Model, tables: Tables, state: ReplicaState, body: RecordBody): Promise<void> {
  const points: { table: Table; key: Bytes }[] = [];
  for (const { ops } of body.transactions) {
    for (const op of ops) {
      if (tables.pace.isDue) await tables.pace.rest();
      const table = tableOf(tables, state, body, op.collection);
      if (table === undefined) continue;
      if (op.type === 'clear') await model.loadRange(table, op.lower, op.upper);
      else points.push({ table, key: op.key });
    }
  }
  await model.load(points);
}

/** So many records are kept that have no effect: the newest ones. */
const MAX_ASIDE = 256;

/** What a batch of records changes, beside rows. */
interface Pass {
  state: ReplicaState;
  isRenumbered: boolean;
  fencedBy: bigint | undefined;
  diverged: number | undefined;
  readonly conflicts: FoundConflict[];
  readonly refused: KvError[];
  readonly voided: number[];
  readonly gaps: { device: string; from: number; to: number }[];
}

/** Applies records that follow the cursor. One commit: all of it or nothing, and once. */
export async function applyRecords(
  tx: Transaction,
  tables: Tables,
  before: ReplicaState,
  records: readonly ReadRecord[],
  options: ApplyOptions,
): Promise<{ readonly state: ReplicaState; readonly result: Applied }> {
  const { isGapAccepted = false, blobs = new Map<string, Bytes>(), unusable } = options;
  const model = new Model(tx, tables, before, blobs);
  const [applied, outbox] = [tx.collection(tables.applied), tx.collection(tables.outbox)];
  const pass: Pass = {
    state: before,
    isRenumbered: false,
    fencedBy: undefined,
    diverged: undefined,
    conflicts: [],
    refused: [],
    voided: [],
    gaps: [],
  };
  const lasts = new Map<string, AppliedRow>();
  await model.loadDue(
    records.reduce((time, { serverTime }) => Math.max(time, serverTime), before.time),
    before,
  );
  for (const [index, record] of records.entries()) {
    await tables.pace.rest();
    const device = toHex(record.device);
    const known = lasts.get(device) ?? (await applied.get(device)) ?? NOTHING_APPLIED;
    const [last] = known;
    const { position, serverTime, crc } = record;
    const previous = pass.state.cursor.position;
    const moved = { ...pass.state, cursor: { position, serverTime, crc } };
    if (record.unread !== undefined) {
      pass.state = await setAside(tx, tables, moved, record, record.unread);
      continue;
    }
    if (record.seq <= last) {
      pass.state = record.isSealed ? moved : advance(model, moved, serverTime);
      continue;
    }
    if (position <= previous) {
      pass.refused.push(
        new KvError(
          'KV_CORRUPT',
          `the log has a record at position ${position} behind position ${previous}; it has no effect`,
        ),
      );
      continue;
    }
    const refused = pass.refused.length;
    if (known[2] !== undefined && record.sender !== undefined && record.sender !== known[2]) {
      pass.refused.push(
        new KvError(
          'KV_CORRUPT',
          `the record at position ${position} has no effect: ${record.sender} has sent it under the id ${device}, which is that of ${known[2]}`,
        ),
      );
      pass.state = await setAside(tx, tables, moved, record, pass.refused.at(-1) as KvError);
      if (device !== pass.state.device) continue;
      // A copy of this file uses the id under other credentials, and it was faster.
      pass.state = withNewId(pass.state, known);
      pass.isRenumbered = true;
      continue;
    }
    const before = record.seq - record.back;
    if (before > last && pass.state.aside === undefined) {
      if (!isGapAccepted) {
        throw new KvError(
          'KV_REPLICATION_GAP',
          `the log has record ${record.seq} of device ${device} at position ${position}, but not record ${before} before it; records are missing`,
          { retryable: true },
        );
      }
      pass.gaps.push({ device, from: last + 1, to: before });
    }
    pass.state = moved;
    const ticket = await ticketOf(pass.state, record, (at) => outbox.get(at));
    const isMine = ticket !== undefined;
    if (!isMine && device === pass.state.device) {
      pass.state = withNewId(pass.state, known);
      pass.isRenumbered = true;
    }
    const { body, isCut } = await bodyOf(tx, tables, pass.state, device, record, pass.refused);
    lasts.set(device, follow(known, record.seq, record.body, { sender: record.sender, isCut }));
    // A check is of the time before it.
    if (record.flags & CHECK && body !== undefined && !isMine) compare(model, pass, previous, position, body);
    pass.state = advance(model, pass.state, timeOf({ serverTime, isSealed: record.isSealed, body }));
    if (body !== undefined) {
      const whole = {
        position,
        serverTime,
        flags: record.flags,
        device: record.device,
        body,
        previous,
        isSealed: record.isSealed,
        isMine,
      };
      if (record.flags & REPAIR) await confirmRepaired(tx, tables, pass.state, body);
      if (!isInPlace(whole)) await refuse(tx, tables, pass, whole, ticket);
      else if ((record.flags & CHECK) === 0)
        await foldWhole(model, tables, pass, whole, index, blobs, unusable?.get(position));
    }
    for (const error of pass.refused.slice(refused)) {
      if (isMine && error.code === 'KV_VERSION_UNSUPPORTED')
        throw new KvError(
          error.code,
          `this version of the package does not understand record ${record.seq}, which a newer one has sent from this database: use that one`,
        );
      pass.state = await setAside(tx, tables, pass.state, record, error);
    }
    if (isMine) await confirm(tx, tables, pass, record, ticket, isCut === true);
  }
  tables.defer(applied.setMany([...lasts]));
  const conflicts: RawConflict[] = [];
  // Entries are still what this device wrote.
  for (const { row, theirs } of pass.conflicts)
    conflicts.push({ collection: row.table.name, key: row.key, mine: await model.entryOf(row), theirs });
  const { isRenumbered, gaps, refused, voided, diverged, fencedBy } = pass;
  return {
    state: await model.save(pass.state),
    result: { conflicts, isRenumbered, gaps, refused, voided, diverged, fencedBy },
  };
}

async function foldWhole(
  model: Model,
  tables: Tables,
  pass: Pass,
  record: FoldedRecord,
  index: number,
  blobs: Map<string, Bytes>,
  unusable: KvError | undefined,
): Promise<void> {
  const { body, isMine } = record;
  await loadWritten(model, tables, pass.state, body);
  const needed = blobsIn(body).filter(
    (op) => !blobs.has(toHexBytes(op.hash)) && isNeeded(model, tables, pass.state, body, op, isMine),
  );
  const missing: BlobOp[] = [];
  for (const op of needed) {
    const value = isMine ? await ownValue(model, tables, pass.state, body, op) : undefined;
    if (value === undefined) missing.push(op);
    else blobs.set(toHexBytes(op.hash), value);
  }
  if (missing.length > 0) {
    if (unusable === undefined) throw new MissingBlobs(index, missing);
    pass.refused.push(unusable);
    return;
  }
  const mine = new Set([pass.state, ...pass.state.formers].map(({ device }) => fromHex(device)));
  const { state, conflicts, refused } = fold(model, pass.state, record, mine);
  checkDeclared(tables, state, body);
  pass.state = state;
  pass.conflicts.push(...conflicts);
  pass.refused.push(...refused);
  if ((record.flags & FENCE) === 0) return;
  const device = toHex(record.device);
  if (device !== pass.state.device) pass.fencedBy = body.transactions[0]?.hlc;
}

/** Another device says what its base is at this place. */
function compare(model: Model, pass: Pass, previous: number, position: number, body: RecordBody): void {
  const { digests = {} } = body;
  const { state } = pass;
  // What was set aside is not in this base.
  if (state.aside !== undefined || !isInPlace({ flags: CHECK, body, previous })) return;
  const mine = model.digests(state);
  const names = [...new Set([...Object.keys(digests), ...Object.keys(mine)])];
  const isSame = names.every((name) => [0, 1].every((at) => (digests[name]?.[at] ?? 0) === (mine[name]?.[at] ?? 0)));
  // An older check, read once more, takes nothing of a later one back: the log is read again once for each.
  if (position < (state.diverged ?? 0)) return;
  pass.state = { ...state, diverged: isSame ? undefined : position };
  if (!isSame) pass.diverged = position;
}

/** The servers have taken a record that had to follow another one than it does. */
async function refuse(
  tx: Transaction,
  tables: Tables,
  pass: Pass,
  { position, device, previous }: FoldedRecord,
  ticket: number | undefined,
): Promise<void> {
  pass.refused.push(
    new KvError(
      'KV_CORRUPT',
      `the record at position ${position} of device ${toHex(device)} has no effect: it follows position ${previous}, which its writer had not read. The servers should have refused it`,
    ),
  );
  if (ticket === undefined) return;
  pass.voided.push(ticket);
  const offered = tx.collection(tables.offered);
  for (const [id, row] of await offered.entries().toArray())
    if (row.ticket === ticket) await offered.set(id, { ...row, isRefused: true });
}

/**
 * Keeps a record without effect, or with one that is not whole. If a later program may understand it, or a
 * later start has its large values, that one reads the log again; until then nobody may take this device's
 * base for what the log says.
 */
async function setAside(
  tx: Transaction,
  tables: Tables,
  state: ReplicaState,
  { position, raw }: ReadRecord,
  { code, message }: KvError,
): Promise<ReplicaState> {
  const rows = tx.collection(tables.aside);
  await rows.set(position, { code, message, record: raw });
  if ((await rows.size) > MAX_ASIDE) await rows.deleteMany(await rows.keys({ limit: 1 }).toArray());
  if (code === 'KV_NOT_FOUND') return { ...state, aside: INCOMPLETE };
  return code === 'KV_VERSION_UNSUPPORTED' ? { ...state, aside: state.aside ?? UNDERSTANDING } : state;
}

/** A record of this device has come back: it leaves the outbox. What the log has lost before it is to be sent again. */
async function confirm(
  tx: Transaction,
  tables: Tables,
  pass: Pass,
  record: ReadRecord,
  ticket: number,
  isCut: boolean,
): Promise<void> {
  const outbox = tx.collection(tables.outbox);
  // Parts stay until all of them are there: if one is lost, all of them are sent again.
  const { index, left } = partOf(record);
  const first = ticket - index;
  if (left === 0 && !isCut) await outbox.clear({ gte: first, lte: ticket });
  const [oldest] = (await outbox.first()) ?? [ticket];
  const last = isCut ? ticket : first - 1;
  if (oldest > last) return;
  pass.state = await renumber(tx, tables, pass.state, oldest, last);
  pass.isRenumbered = true;
}

/** A strict record that was in the log until that lost it, and that another device has put back: it has its effect. */
async function confirmRepaired(
  tx: Transaction,
  tables: Tables,
  { device, formers }: ReplicaState,
  { transactions }: RecordBody,
): Promise<void> {
  const outbox = tx.collection(tables.outbox);
  const [ticket, bytes] = (await outbox.first()) ?? [];
  if (ticket === undefined || bytes === undefined || decodeOutbox(bytes).expect === undefined) return;
  const isMine = (id: bigint): boolean => [device, ...formers.map((former) => former.device)].includes(toHex(id));
  const isBack = transactions.some(({ ops }) =>
    ops.some(
      (op) => op.type !== 'clear' && op.stamp?.isStrict === true && op.stamp.n === ticket && isMine(op.stamp.device),
    ),
  );
  if (isBack) await outbox.delete(ticket);
}

/** The device that wrote a value has it as its entry, until it writes another one. */
async function ownValue(
  model: Model,
  tables: Tables,
  state: ReplicaState,
  body: RecordBody,
  op: BlobOp,
): Promise<Bytes | undefined> {
  const table = tableOf(tables, state, body, op.collection);
  const row = table && model.row(table, op.key);
  const entry = row?.pending?.n === body.n ? await model.entryOf(row) : null;
  return entry !== null && checkOfBytes(entry.value) === op.check ? entry.value : undefined;
}

/** Whether a value has to be kept, or become the entry. */
function isNeeded(
  model: Model,
  tables: Tables,
  state: ReplicaState,
  body: RecordBody,
  op: BlobOp,
  isMine: boolean,
): boolean {
  const table = tableOf(tables, state, body, op.collection);
  if (table === undefined) return false;
  return (
    !isMine ||
    op.expiresAt !== 0 ||
    table.data === undefined ||
    state.history !== state.settled ||
    model.row(table, op.key).pending?.n !== body.n
  );
}

/** This program would take the bytes of others for something else, and they its own. */
function checkDeclared(tables: Tables, { declared }: ReplicaState, body: RecordBody): void {
  for (const name of body.declared.keys()) {
    const [mine, theirs] = [tables.byName.get(name)?.declaration, declared[name]];
    if (mine === undefined || theirs === undefined || mine === theirs) continue;
    throw mismatch(name, theirs, mine);
  }
}

/** A part as it is stored: with the log's time, some time after which it is of no use to anybody; 0 if that was not known. */
const encodePart = (time: number, part: Bytes): Bytes => new ByteSink().u64(BigInt(time)).raw(part).done();

function readPart(bytes: Bytes, time: number): Bytes | undefined {
  const source = new ByteSource(bytes);
  const kept = Number(source.u64());
  return kept > 0 && kept < time - OFFLINE_LIMIT_MS ? undefined : source.rest();
}

/** Parts stay until the last one comes. Those whose writer is gone are forgotten. */
async function forgetParts(tx: Transaction, tables: Tables, time: number): Promise<void> {
  const chunks = tx.collection(tables.chunks);
  for (const [at, bytes] of await chunks.entries().toArray())
    if (readPart(bytes, time) === undefined) await chunks.delete(at);
}

/** What a record says, or completes; no body: more parts follow, the record `isCut` because one is missing, or it means nothing. */
async function bodyOf(
  tx: Transaction,
  tables: Tables,
  state: ReplicaState,
  device: string,
  record: ReadRecord,
  refused: KvError[],
): Promise<{ readonly body?: RecordBody; readonly isCut?: true }> {
  const chunks = tx.collection(tables.chunks);
  // What the servers say of a sealed part nothing but the whole body could confirm.
  const time = record.isSealed ? state.time : Math.max(state.time, record.serverTime);
  try {
    if (record.flags & CHUNK) {
      const { index, left, part } = readChunk(record.body);
      if (left > 0) {
        if (index === 0) await forgetParts(tx, tables, time);
        await chunks.set([device, record.seq], encodePart(time, part));
        return {};
      }
    }
    const bytes = await wholeBody(record, async (back) => {
      const at = [device, record.seq - back] as const;
      const part = await chunks.get(at);
      await chunks.delete(at);
      return part && readPart(part, time);
    });
    if (bytes === undefined) return { isCut: true };
    await tables.pace.rest();
    const body = decodeBody(bytes, record.flags);
    await checkKeys(tables, body);
    return { body };
  } catch (error) {
    const { code, message } = error as KvError;
    if (code !== 'KV_CORRUPT' && code !== 'KV_KEY_TOO_LARGE' && code !== 'KV_VERSION_UNSUPPORTED') throw error;
    refused.push(
      new KvError(
        code,
        `the record at position ${record.position}, number ${record.seq} of device ${device}, has no effect here: ${message}`,
      ),
    );
    return {};
  }
}

async function checkKeys(tables: Tables, { transactions }: RecordBody): Promise<void> {
  const maxBytes = await tables.maxKeyBytes();
  for (const { ops } of transactions) {
    for (const op of ops) {
      if (op.type === 'clear' || op.key.length <= maxBytes) continue;
      throw new KvError(
        'KV_KEY_TOO_LARGE',
        `a key of ${op.key.length} bytes in collection ${JSON.stringify(op.collection)}, and this database takes ${maxBytes}; a larger \`nodeBytes\` takes longer ones`,
      );
    }
  }
}
