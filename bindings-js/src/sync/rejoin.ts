// What a device does when its database or the log is not what it was: the database was restored from
// a backup, or the log lost history or has to be read again.
import type { Transaction } from '../types/index.ts';
import { checkOf } from './apply.ts';
import { fromHex } from './bytes.ts';
import { putRecords } from './drain.ts';
import { Model } from './model.ts';
import type { Parts } from './parts.ts';
import { REPAIR } from './record.ts';
import type { SyncOp } from './record.ts';
import { decodeOutbox } from './rows.ts';
import type { SyncState } from './rows.ts';
import { withNewId } from './tables.ts';
import type { Tables } from './tables.ts';

const REPAIR_SLICE = 500;

/** A backup has no versions: in a restored database they are others, and the feed is empty. */
export async function checkWitness(parts: Parts, state: SyncState): Promise<SyncState> {
  const { local } = parts;
  const { witness: witnesses } = local.tables;
  if (state.witness !== 0) {
    if ((await witnesses.getEntry('witness'))?.version === state.witness) return state;
    await recognizeAll(parts);
  }
  await local.change('strict', async (tx, before) => {
    await tx.collection(witnesses).set('witness', null);
    return { state: { ...before }, result: undefined };
  });
  const witness = (await witnesses.getEntry('witness'))?.version ?? 0;
  return local.change('strict', async (_, before) => {
    // The original may be in use beside the restored one.
    const next = before.witness === 0 ? { ...before, witness } : { ...withNewId(before), witness, drained: -2 };
    return { state: next, result: next };
  });
}

async function recognizeAll({ local, clock }: Parts): Promise<void> {
  for (const table of local.tables.byName.values()) {
    const keys = table.stamps.keys();
    for (;;) {
      const slice = await keys.nextMany(REPAIR_SLICE);
      if (slice.length === 0) break;
      await local.change('relaxed', async (tx, state) => {
        const model = new Model(tx, local.tables, clock());
        await model.load(slice.map((key) => ({ table, key })));
        for (const key of slice) model.row(table, key).recognize(checkOf);
        await model.save();
        return { state: { ...state }, result: undefined };
      });
    }
  }
}

/**
 * A strict record that was on its way when the history was lost: if the log has it, it comes back as
 * another device's.
 */
async function dropOpenStrict(tx: Transaction, tables: Tables): Promise<void> {
  const outbox = tx.collection(tables.outbox);
  const last = await outbox.last();
  if (last !== undefined && decodeOutbox(last[1]).expect !== undefined) await outbox.delete(last[0]);
}

/**
 * Begins to read the log from its start, under a new id and keeping the base. The horizon of tombstones
 * begins there, too: what counts as forgotten is what did when the others read the same records.
 */
export async function rejoin(tables: Tables, tx: Transaction, state: SyncState, kind: 'lost' | 'reread'): Promise<SyncState> {
  await tx.collection(tables.applied).clear();
  await tx.collection(tables.chunks).clear();
  await dropOpenStrict(tx, tables);
  return { ...withNewId(state), epoch: state.epoch + 1, cursor: { position: 0, serverTime: 0, crc: 0 }, highTime: 0, rejoin: kind };
}

/** Ends a rejoin: what the log turned out not to have is put back, or deleted. */
export async function reconcile({ local, clock, blobs, events }: Parts): Promise<void> {
  let records = 0;
  const { rejoin: kind, epoch } = await local.state();
  if (kind === undefined) return;
  for (const table of local.tables.byName.values()) {
    const keys = table.stamps.keys();
    for (;;) {
      const slice = await keys.nextMany(REPAIR_SLICE);
      if (slice.length === 0) break;
      records += await local.change('strict', async (tx, state) => {
        // Another tab took over.
        if (state.rejoin !== kind || state.epoch !== epoch) return { state, result: 0 };
        const model = new Model(tx, local.tables, clock());
        await model.load(slice.map((key) => ({ table, key })));
        const ops: SyncOp[] = [];
        for (const key of slice) {
          const row = model.row(table, key);
          const { stamp } = row;
          if (stamp === undefined || stamp.epoch === epoch) continue;
          if (kind === 'reread') {
            row.forget();
            continue;
          }
          const value = row.isStrict ? row.copy : row.isClean ? row.entry : row.overlay?.base;
          // Under a local write that was not sent yet, and that is newer.
          if (value === undefined || (value === null && !stamp.isDead)) continue;
          const { h, device, isStrict } = stamp;
          const named = { collection: table.name, key, stamp: { h, device, isStrict } };
          ops.push(value === null ? { type: 'delete', ...named } : { type: 'set', value: value.value, expiresAt: value.expiresAt, ...named });
        }
        await model.save();
        if (ops.length === 0) return { state: kind === 'reread' ? { ...state } : state, result: 0 };
        const last = await putRecords(tx, local.tables, state.nextTicket, REPAIR, [{ base: 0, hlc: fromHex(state.hlc), ops }], blobs);
        return { state: { ...state, nextTicket: last + 1 }, result: 1 };
      });
    }
  }
  await local.change('strict', async (_, state) => ({ state: state.epoch === epoch ? { ...state, rejoin: undefined } : state, result: undefined }));
  if (kind === 'lost') events.repaired(records);
}
