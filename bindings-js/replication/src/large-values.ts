// Large values of records that are about to be applied.
import { blobsIn } from './apply.ts';
import type { BlobOp, ReadRecord } from './apply.ts';
import { toHex, toHexBytes } from './bytes.ts';
import { inParallel } from './parallel.ts';
import { CHUNK, decodeBody } from './record.ts';
import type { ReplicaState } from './state.ts';
import type { Bytes } from './tables.ts';

/** So much is in memory at a time, or what one record refers to. */
const MAX_BYTES = 16 << 20;
const PARALLEL = 4;

/**
 * Fetches `missing`, which the first record needs, and what those after it need as far as it fits
 * into memory. Returns how many records have what they need: at least the first one.
 */
export async function fetchBlobs(
  state: ReplicaState,
  records: readonly ReadRecord[],
  missing: readonly BlobOp[],
  fetch: (hash: Bytes) => Promise<Bytes>,
  into: Map<string, Bytes>,
): Promise<number> {
  const wanted = new Map<string, { readonly hash: Bytes; readonly index: number }>();
  let [end, bytes] = [records.length, 0];
  for (const [index, record] of records.entries()) {
    const ops = index === 0 ? missing : blobsAhead(state, record);
    const added = ops?.filter(({ hash }) => !wanted.has(toHexBytes(hash)));
    if (added !== undefined) bytes += added.reduce((sum, { size }) => sum + size, 0);
    if (index > 0 && (added === undefined || (added.length > 0 && bytes > MAX_BYTES))) {
      end = index;
      break;
    }
    for (const { hash } of added ?? []) wanted.set(toHexBytes(hash), { hash, index });
  }
  await inParallel(PARALLEL, [...wanted], async ([name, { hash, index }]) => {
    if (index >= end) return;
    try {
      into.set(name, await fetch(hash));
    } catch (error) {
      if (index === 0) throw error;
      // What comes before can be applied; then it is the first one.
      end = Math.min(end, index);
    }
  });
  return end;
}

/** What a record needs, as far as can be told before its transaction; undefined if it cannot. */
function blobsAhead({ device, formers }: ReplicaState, record: ReadRecord): BlobOp[] | undefined {
  const writer = toHex(record.device);
  if (record.unread !== undefined || writer === device || formers.some((former) => former.device === writer)) return [];
  if ((record.flags & CHUNK) !== 0) return undefined;
  try {
    return blobsIn(decodeBody(record.body));
  } catch {
    return undefined;
  }
}
