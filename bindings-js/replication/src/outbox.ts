// Records that wait to be sent: how transactions are put into the outbox, and what they are when the
// log has them. A record's number in the outbox is the one under which it is sent.
import { KvError } from 'mangrove-kv';
import type { Transaction } from 'mangrove-kv';
import { compareBytes, concat, toHex, toHexBytes } from './bytes.ts';
import { CHUNK, encodeBody } from './record.ts';
import type { RecordBody, ReplicationOp } from './record.ts';
import { checkOfBytes } from './row.ts';
import { decodeOutbox, encodeOutbox } from './state.ts';
import type { OutboxRow, ReplicaState } from './state.ts';
import type { Bytes, Tables } from './tables.ts';

/** Bodies are cut into parts of this size; compressed and sealed they fit into a record. */
export const MAX_BODY_BYTES = 900 << 10;
/** Larger values are not in the record, but objects of their own. */
export const BLOB_BYTES = 256 << 10;

/** Turns a large value into an object; undefined without an object store. */
export type BlobMaker = (value: Bytes) => Promise<{ readonly hash: Bytes; readonly stored: Bytes }>;

async function withBlobs(tx: Transaction, tables: Tables, op: ReplicationOp, blobs: BlobMaker): Promise<ReplicationOp> {
  if (op.type !== 'set' || op.value.length <= BLOB_BYTES) return op;
  const { hash, stored } = await blobs(op.value);
  await tx.collection(tables.blobs).set(toHexBytes(hash), stored);
  const { collection, key, value, expiresAt, stamp } = op;
  return {
    type: 'blob',
    collection,
    key,
    hash,
    size: value.length,
    check: checkOfBytes(value),
    expiresAt,
    ...(stamp && { stamp }),
  };
}

/** Puts a record into the outbox, in parts if it is long; returns the next ticket. */
export async function putRecord(
  tx: Transaction,
  tables: Tables,
  flags: number,
  { n, declared, transactions: given }: RecordBody,
  blobs: BlobMaker | undefined,
): Promise<number> {
  const transactions =
    blobs === undefined
      ? given
      : await Promise.all(
          given.map(async (each) => ({
            ...each,
            ops: await Promise.all(each.ops.map((op) => withBlobs(tx, tables, op, blobs))),
          })),
        );
  return putBody(tx, tables, n, flags, { n, declared, transactions });
}

/** Puts a body into the outbox under a ticket and, if it is long, those after it; returns the next one. */
export async function putBody(
  tx: Transaction,
  tables: Tables,
  ticket: number,
  flags: number,
  whole: RecordBody,
): Promise<number> {
  await tables.pace.rest();
  const body = encodeBody(whole);
  await tables.pace.rest();
  const outbox = tx.collection(tables.outbox);
  if (body.length <= MAX_BODY_BYTES) {
    tables.defer(outbox.set(ticket, encodeOutbox({ flags, expect: undefined, body })));
    return ticket + 1;
  }
  const parts = chunksOf(body, MAX_BODY_BYTES);
  await outbox.setMany(
    parts.map(
      (part, index) => [ticket + index, encodeOutbox({ flags: flags | CHUNK, expect: undefined, body: part })] as const,
    ),
  );
  return ticket + parts.length;
}

/** The ticket of a record if this device wrote it, under its present id or an earlier one. */
export async function ticketOf(
  state: ReplicaState,
  record: { readonly device: bigint; readonly seq: number; readonly body: Bytes },
  rowAt: (ticket: number) => Promise<Bytes | undefined>,
): Promise<number | undefined> {
  const device = toHex(record.device);
  if (device !== state.device && !state.formers.some((former) => former.device === device)) return undefined;
  const row = await rowAt(record.seq);
  return row !== undefined && compareBytes(decodeOutbox(row).body, record.body) === 0 ? record.seq : undefined;
}

/**
 * Gives records the log has lost new tickets, behind all others, with all parts of what they belong to:
 * under their old numbers nobody would apply them. Returns the state with the next ticket.
 */
export async function renumber(
  tx: Transaction,
  tables: Tables,
  state: ReplicaState,
  first: number,
  last: number,
): Promise<ReplicaState> {
  const outbox = tx.collection(tables.outbox);
  let { nextTicket } = state;
  const rows = await outbox.entries({ gte: first, lte: last }).toArray();
  for (const [ticket, bytes] of rows) {
    await outbox.set(nextTicket++, bytes);
    await outbox.delete(ticket);
  }
  return { ...state, nextTicket };
}

/** Which part of a body a record has, and how many follow it. */
export function partOf({ flags, body }: Pick<OutboxRow, 'flags' | 'body'>): {
  readonly index: number;
  readonly left: number;
} {
  return flags & CHUNK ? readChunk(body) : { index: 0, left: 0 };
}

export function readChunk(body: Bytes): { readonly index: number; readonly left: number; readonly part: Bytes } {
  if (body.length < 8) throw new KvError('KV_CORRUPT', 'a part of a replication record is too short');
  const view = new DataView(body.buffer, body.byteOffset);
  return { index: view.getUint32(0), left: view.getUint32(4), part: body.slice(8) };
}

function chunksOf(body: Bytes, maxBytes: number): Bytes[] {
  const count = Math.ceil(body.length / maxBytes);
  return Array.from({ length: count }, (_, index) => {
    const part = body.subarray(index * maxBytes, (index + 1) * maxBytes);
    const chunk = new Uint8Array(8 + part.length);
    const view = new DataView(chunk.buffer);
    view.setUint32(0, index);
    view.setUint32(4, count - 1 - index);
    chunk.set(part, 8);
    return chunk;
  });
}

/** The body of a record or of the parts that it completes, the one before it being `earlier(1)`; undefined: one is missing. */
export async function wholeBody(
  record: Pick<OutboxRow, 'flags' | 'body'>,
  earlier: (back: number) => Promise<Bytes | undefined>,
): Promise<Bytes | undefined> {
  if ((record.flags & CHUNK) === 0) return record.body;
  const { index, part } = readChunk(record.body);
  const parts = [part];
  for (let back = 1; back <= index; back++) {
    const each = await earlier(back);
    if (each === undefined) return undefined;
    parts.unshift(each);
  }
  return concat(parts);
}
