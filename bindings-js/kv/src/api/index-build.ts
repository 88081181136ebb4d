// Builds the indexes of a collection that had entries when they were declared. Part of
// maintenance.ts, which few pages load.
import { KvError } from '../base/errors.ts';
import { checkSignal, ignore, turn } from '../base/async.ts';
import type { BuildIndexesOptions } from '../types/indexes.ts';
import type { Connection } from '../wire/connection.ts';
import { Op, ScanFlag } from '../wire/opcodes.ts';
import type { ReplyReader } from '../wire/protocol.ts';

/** Entries that one commit adds to an index, and their size in bytes. */
const SLICE = { entries: 1000, bytes: 1 << 20 };

const STRICT = 0;
const RELAXED = 1;

/** An index that is being built: how far it is. */
interface Building {
  /** Its place among those declared. */
  readonly at: number;
  /** The last key that it covers. */
  readonly from: Uint8Array | undefined;
  readonly done: number;
  readonly total: number;
}

/** An entry as it is stored. */
interface Stored {
  readonly key: Uint8Array;
  readonly value: Uint8Array;
  readonly version: number;
}

/** What is built. */
export interface Work {
  readonly connection: Connection;
  /** Index of the collection in the connection. */
  readonly collection: number;
  /** Names of the declared indexes. */
  readonly names: readonly string[];
  /** Returns the keys of a stored entry in the index at a place. */
  readonly keysOf: (at: number, key: Uint8Array, value: Uint8Array) => Uint8Array[];
}

/** A slice of an index: entries after a key, read from the newest state. */
interface Slice {
  readonly entries: Stored[];
  readonly isLast: boolean;
}

/** Resolves when every index is complete. Others may build them too: then each takes some slices. */
export async function buildIndexes(work: Work, { onProgress, signal }: BuildIndexesOptions = {}): Promise<void> {
  for (;;) {
    checkSignal(signal);
    const states = await readStates(work);
    const gone = states.indexOf('gone');
    if (gone >= 0)
      throw new KvError(
        'KV_INDEX_MISMATCH',
        `the index ${JSON.stringify(work.names[gone])} does not exist any more; open the collection again`,
      );
    const building = states.find((state) => typeof state === 'object');
    if (building === undefined) return;
    await addSlices(work, building, (done, total) => {
      checkSignal(signal);
      onProgress?.({ index: work.names[building.at]!, done, total });
    });
  }
}

/**
 * Adds slices until the index is complete or somebody else has added one. While this thread computes
 * the index keys of a slice, the engine adds the one before and reads the next.
 */
async function addSlices(
  work: Work,
  { at, from, done, total }: Building,
  report: (done: number, total: number) => void,
): Promise<void> {
  report(done, total);
  let start = from;
  let covered = done;
  let next = ahead(readAfter(work, start));
  let adding: Promise<boolean> = Promise.resolve(true);
  try {
    for (;;) {
      const { entries, isLast } = await next;
      const to = isLast ? undefined : entries.at(-1)?.key;
      if (to !== undefined) next = ahead(readAfter(work, to));
      const lists = entries.map(({ key, value }) => work.keysOf(at, key, value));
      if (!(await adding)) return;
      if (start !== from) report(covered, total);
      adding = ahead(addSlice(work, at, { from: start, to }, entries, lists));
      covered = Math.min(covered + entries.length, total);
      if (to === undefined) break;
      start = to;
      // Index keys are computed in this thread, which has other work too.
      await turn();
    }
    await adding;
  } finally {
    // What is still under way has nobody else to wait for it.
    await Promise.allSettled([next, adding]);
  }
}

function readStates({ connection, collection }: Work): Promise<(Building | 'complete' | 'gone')[]> {
  return connection.requestLoading(
    (writer) => writer.u8(Op.indexes).uv(collection),
    (reader) => Array.from({ length: reader.uv() }, (_, at) => readState(reader, at)),
  );
}

function readState(reader: ReplyReader, at: number): Building | 'complete' | 'gone' {
  const state = reader.u8();
  if (state !== 1) return state === 0 ? 'gone' : 'complete';
  return { at, from: reader.optional(), done: reader.uv(), total: reader.uv() };
}

/** A promise that may reject before it is awaited. */
function ahead<T>(promise: Promise<T>): Promise<T> {
  promise.catch(ignore);
  return promise;
}

/** Returns whether the index was at `from`, and now is at `to`, or complete without one. */
function addSlice(
  { connection, collection }: Work,
  at: number,
  { from, to }: { from: Uint8Array | undefined; to: Uint8Array | undefined },
  entries: readonly Stored[],
  lists: readonly Uint8Array[][],
): Promise<boolean> {
  return connection.requestLoading(
    (writer) => {
      writer
        .u8(Op.indexSlice)
        .u8(to === undefined ? STRICT : RELAXED)
        .uv(collection)
        .uv(at);
      for (const edge of [from, to]) {
        writer.u8(edge === undefined ? 0 : 1);
        if (edge !== undefined) writer.bytes(edge);
      }
      writer.uv(entries.length);
      for (const [nth, { key, version }] of entries.entries()) {
        const list = lists[nth]!;
        writer.bytes(key).uv(version).uv(list.length);
        for (const bytes of list) writer.bytes(bytes);
      }
    },
    (reader) => {
      reader.uv();
      return reader.u8() !== 0;
    },
  );
}

/** Reads the entries after a key, from the newest state. */
function readAfter({ connection, collection }: Work, from: Uint8Array | undefined): Promise<Slice> {
  const id = connection.newId();
  const read = connection.request(
    (writer) => {
      writer.u8(Op.scanOpen).uv(id).uv(0).uv(collection).range({ lower: from, lowerExclusive: true });
      writer
        .u8(ScanFlag.keys | ScanFlag.values | ScanFlag.meta)
        .uv(0)
        .uv(0)
        .uv(SLICE.entries)
        .uv(SLICE.bytes);
    },
    (reader) => {
      const isLast = reader.u8() !== 0;
      const count = reader.uv();
      reader.uv();
      const entries = Array.from({ length: count }, () => {
        const stored = { key: reader.bytes(), value: reader.bytes(), version: reader.uv() };
        reader.uv();
        return stored;
      });
      return { entries, isLast };
    },
  );
  connection.post((writer) => writer.u8(Op.scanClose).uv(id), ignore);
  return read;
}
