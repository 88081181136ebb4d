// What a device does when its database or the log is not what it was: the database was restored from
// a backup, or the log lost history or has to be read again.
import type { Transaction } from 'mangrove-kv';
import { fromHex } from './bytes.ts';
import { Model } from './model.ts';
import { partOf, putBody, putRecord, wholeBody } from './outbox.ts';
import type { ReplicaContext, RawDivergence } from './replica-context.ts';
import { CHUNK, REPAIR, UNBASED, decodeBody } from './record.ts';
import type { RecordBody, ReplicationOp, SyncTransaction } from './record.ts';
import type { Base } from './row.ts';
import { NOTHING_APPLIED, UNCOMPARED, decodeOutbox, encodeOutbox } from './state.ts';
import type { AppliedRow, OutboxRow, ReplicaState } from './state.ts';
import { withNewId } from './tables.ts';
import type { Bytes, Table, Tables } from './tables.ts';

const REPAIR_SLICE = 500;
const ALL = 2 ** 32 - 1;

/** A backup has neither versions nor the feed: everything has to be compared. The original may be in use beside it. */
export async function checkWitness({ local }: ReplicaContext, state: ReplicaState): Promise<ReplicaState> {
  const { witness: witnesses } = local.tables;
  if (state.witness !== 0 && (await witnesses.getEntry('witness'))?.version === state.witness) return state;
  await local.change('strict', async (tx, before) => {
    await tx.collection(witnesses).set('witness', null);
    return { state: { ...before }, result: undefined };
  });
  const witness = (await witnesses.getEntry('witness'))?.version ?? 0;
  return local.change('strict', async (tx, before) => {
    const next =
      before.witness === 0
        ? { ...before, witness }
        : { ...withNewId(before, await lastOf(tx, local.tables, before)), witness, drained: UNCOMPARED };
    return { state: next, result: next };
  });
}

const lastOf = async (tx: Transaction, { applied }: Tables, { device }: ReplicaState): Promise<AppliedRow> =>
  (await tx.collection(applied).get(device)) ?? NOTHING_APPLIED;

/**
 * A strict record that was on its way when the history was lost: if the log has it, it comes back as
 * another device's.
 */
async function dropOpenStrict(tx: Transaction, tables: Tables): Promise<void> {
  const outbox = tx.collection(tables.outbox);
  const first = await outbox.first();
  if (first !== undefined && decodeOutbox(first[1]).expect !== undefined) await outbox.delete(first[0]);
}

/**
 * What the writers of pending records had applied is not what the log has: they say so. And each clear names
 * the keys that it has removed, since others may put those back before it. Returns the next ticket.
 */
async function unbase(tx: Transaction, tables: Tables, state: ReplicaState): Promise<number> {
  const outbox = tx.collection(tables.outbox);
  let { nextTicket } = state;
  let isMoved = false;
  const parts: (readonly [ticket: number, row: OutboxRow])[] = [];
  for (const ticket of await outbox.keys().toArray()) {
    const part = decodeOutbox((await outbox.get(ticket)) as Bytes);
    parts.push([ticket, { ...part, flags: part.flags | UNBASED }]);
    if (partOf(part).left > 0) continue;
    const rows = parts.splice(0);
    const [, row] = rows.at(-1) as (typeof rows)[number];
    const bytes = await wholeBody(row, async (back) => rows.at(-1 - back)?.[1].body.subarray(8));
    const body =
      bytes === undefined ? undefined : await withNamedClears(tx, tables, state, decodeBody(bytes, row.flags));
    // It may have more parts now. What is behind it stays behind it.
    isMoved ||= body !== undefined;
    if (!isMoved) for (const [at, each] of rows) await outbox.set(at, encodeOutbox(each));
    else {
      for (const [at] of rows) await outbox.delete(at);
      if (body !== undefined) nextTicket = await putBody(tx, tables, nextTicket, row.flags & ~CHUNK, body);
      else for (const [, each] of rows) await outbox.set(nextTicket++, encodeOutbox(each));
    }
  }
  return nextTicket;
}

/** A body in which the keys of clears are deleted by name, too; undefined if it has none. */
async function withNamedClears(
  tx: Transaction,
  tables: Tables,
  state: ReplicaState,
  body: RecordBody,
): Promise<RecordBody | undefined> {
  if (!body.transactions.some(({ ops }) => ops.some(({ type }) => type === 'clear'))) return undefined;
  const model = new Model(tx, tables, state);
  const transactions: SyncTransaction[] = [];
  for (const transaction of body.transactions) {
    const ops: ReplicationOp[] = [];
    for (const op of transaction.ops) {
      ops.push(op);
      if (op.type !== 'clear') continue;
      const table = tables.table(op.collection, body.declared.get(op.collection) as string);
      await model.loadRange(table, op.lower, op.upper);
      for (const { key, pending, isLive, former } of model.within(table, op.lower, op.upper)) {
        if (pending?.n === body.n && pending.check === 0 && (isLive || former?.stamp.isDead === false))
          ops.push({ type: 'delete', collection: op.collection, key });
      }
    }
    transactions.push({ ...transaction, ops });
  }
  return { ...body, transactions };
}

/**
 * Begins to read the log from its start. Until its end entries stay as they are, and rows keep what they
 * had. The log's time begins there, too: what counts as forgotten is what did when the others read the
 * same records.
 */
export async function rejoin(
  tables: Tables,
  tx: Transaction,
  state: ReplicaState,
  kind: 'lost' | 'reread',
): Promise<ReplicaState> {
  const last = await lastOf(tx, tables, state);
  await tx.collection(tables.applied).clear();
  await tx.collection(tables.chunks).clear();
  await tx.collection(tables.aside).clear();
  const isLost = kind === 'lost' || state.rejoin === 'lost';
  let { nextTicket } = state;
  if (kind === 'lost') {
    await dropOpenStrict(tx, tables);
    nextTicket = await unbase(tx, tables, state);
  }
  return {
    ...withNewId(state, last, kind === 'reread'),
    nextTicket,
    history: state.history + 1,
    readBefore: Math.max(state.readBefore, state.cursor.position),
    cursor: { position: 0, serverTime: 0, crc: 0 },
    drainedBase: 0,
    time: 0,
    declared: {},
    formerlyDeclared: { ...state.formerlyDeclared, ...state.declared },
    aside: undefined,
    digests: {},
    isLoading: false,
    isMending: false,
    diverged: kind === 'lost' ? undefined : state.diverged,
    rejoin: isLost ? 'lost' : 'reread',
  };
}

/** Ends a rejoin: entries become what the log has, and what it turned out to have lost is put back. */
export async function conclude({ local, blobs, events, advance }: ReplicaContext): Promise<void> {
  let records = 0;
  const divergences: RawDivergence[] = [];
  const begun = await local.state();
  const { rejoin: kind, history } = begun;
  if (kind === undefined) return;
  for (const table of local.tables.all(begun)) {
    const keys = table.rows.keys();
    const different: Bytes[] = [];
    for (;;) {
      // A unique key may have gone from one entry to another, anywhere: no part of the entries fits the others as they are.
      const slice = await keys.nextMany(table.unique.length > 0 ? ALL : REPAIR_SLICE);
      if (slice.length === 0) break;
      const found = await advance('strict', async (tx, state) => {
        // Another tab took over.
        if (state.rejoin !== kind || state.history !== history) return { state, result: { records: 0, different: [] } };
        const model = new Model(tx, local.tables, state);
        await model.load(slice.map((key) => ({ table, key })));
        const different = slice.filter((key) => model.row(table, key).isDifferent);
        const repairs: { key: Bytes; base: Base }[] = [];
        const ops: ReplicationOp[] = [];
        for (const key of slice) {
          const row = model.row(table, key);
          const base = row.conclude(kind === 'lost', state.nextTicket);
          if (base !== undefined) repairs.push({ key, base });
        }
        for (const { key, base } of repairs) {
          const op = await repairOf(model, table, key, base);
          if (op !== undefined) ops.push(op);
        }
        await model.compare();
        const next = await model.save(state);
        if (ops.length === 0) return { state: next, result: { records: 0, different } };
        const body = {
          n: state.nextTicket,
          declared: new Map([[table.name, table.declaration]]),
          transactions: [{ base: 0, hlc: fromHex(state.hlc), ops }],
        };
        const nextTicket = await putRecord(tx, local.tables, REPAIR, body, blobs);
        return { state: { ...next, nextTicket }, result: { records: 1, different } };
      });
      records += found.records;
      different.push(...found.different);
    }
    const [from, to] = [different[0], different.at(-1)];
    if (from !== undefined && to !== undefined)
      divergences.push({ collection: table.name, entries: different.length, from, to });
  }
  if (begun.isMending && divergences.length > 0) events.diverged(divergences);
  await local.change('strict', async (_, state) => ({
    state:
      state.history === history
        ? { ...state, settled: history, rejoin: undefined, isMending: false, formerlyDeclared: {} }
        : state,
    result: undefined,
  }));
  if (kind === 'lost') events.repaired(records);
}

async function repairOf(
  model: Model,
  table: Table,
  key: Bytes,
  { stamp, kept }: Base,
): Promise<ReplicationOp | undefined> {
  const { h, device, n, isStrict, isDead, expiresAt } = stamp;
  const named = { collection: table.name, key, stamp: { h, device, n, isStrict } };
  if (isDead) return { type: 'delete', ...named };
  const row = model.row(table, key);
  const value = kept ?? (await model.entryOf(row))?.value;
  if (value !== undefined) return { type: 'set', value, expiresAt, ...named };
  row.giveUp();
  return undefined;
}
