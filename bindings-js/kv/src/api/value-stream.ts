// Values in parts: Blobs, streams and ranges. A file of its own in the package, loaded at the first
// call that needs it.
import { KvError } from '../base/errors.ts';
import { isSnapshotLost } from '../base/superseded.ts';
import { abortable, checkSignal, ignore } from '../base/async.ts';
import { ReadableStream } from '../base/platform.ts';
import {
  ENCODED,
  MAX_HEAD_BYTES,
  MAX_WHOLE_BYTES,
  decodeHead,
  encodeHead,
  headOf,
  isBlob,
  toBlob,
} from '../codec/blob.ts';
import type { BlobHead, Encoded } from '../codec/blob.ts';
import type { SignalOptions, StreamOptions } from '../types/index.ts';
import { Handle } from '../wire/handle.ts';
import { LazyOp, Op } from '../wire/opcodes.ts';
import { bodyOf } from '../wire/protocol.ts';
import { ASK } from '../wire/lookup.ts';
import type { Target } from '../wire/collection-target.ts';
import type { View } from '../wire/contracts.ts';
import { SIGNAL } from './arguments.ts';
import { checkNames } from '../base/names.ts';
import { checkOpen } from './read-verbs.ts';
import { promised } from './task.ts';
import { PartSource } from './value-stream-source.ts';
import type { Goal } from './write-verbs.ts';

/** Bytes read or written by one message. */
const STEP = 1 << 20;
/** How often reading or writing starts over when another tab has taken over the database. */
const MAX_RESTARTS = 5;

/** An entry, and the state in which it is read. */
export interface Place {
  readonly target: Target<unknown, unknown>;
  readonly view: View;
  readonly key: Uint8Array;
}

interface Part {
  /** Length of the whole value. */
  readonly length: number;
  readonly version: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** The body of a request about a value in parts. */
function readPart({ target, view, key }: Place, start: number, end: number, id = view.id): Promise<Part | undefined> {
  checkOpen(view);
  return target.connection.requestLoading(
    (writer) =>
      writer
        .u8(Op.lazy)
        .u8(0)
        .bytes(bodyOf(LazyOp.read, (body) => body.uv(id).uv(target.index).bytes(key).uv(start).uv(end))),
    // The part outlives the reply's buffer.
    (reader) =>
      reader.u8() === 0 ? undefined : { length: reader.uv(), version: reader.uv(), bytes: reader.bytes().slice() },
  );
}

/** Runs `work` with the id of a state that does not change: a snapshot, unless the view is one. */
async function inState<T>({ target: { connection }, view }: Place, work: (id: number) => Promise<T>): Promise<T> {
  if (view.id !== 0) return work(view.id);
  for (let restarts = 0; ; restarts++) {
    const id = connection.newId();
    connection.post(
      (writer) => writer.u8(Op.snapshotOpen).uv(id),
      (reader) => reader.uv(),
    );
    try {
      return await work(id);
    } catch (error) {
      if (!isSnapshotLost(error) || restarts === MAX_RESTARTS) throw error;
    } finally {
      connection.post((writer) => writer.u8(Op.snapshotClose).uv(id), ignore);
    }
  }
}

/** The value changed between two reads, which only a write of the same transaction can do. */
function changed(): KvError {
  return new KvError('KV_CONFLICT', 'the value was written while it was read; await one call before the other', {
    retryable: true,
  });
}

/** Calls `take` with the bytes of a value from `start` to `end`, `STEP` at a time. */
async function readParts(
  place: Place,
  id: number,
  { length, version }: Part,
  start: number,
  end: number,
  take: (bytes: Uint8Array<ArrayBuffer>) => void,
): Promise<void> {
  for (let at = start; at < end; at += STEP) {
    const part = await readPart(place, at, Math.min(at + STEP, end), id);
    if (part?.version !== version || part.length !== length) throw changed();
    take(part.bytes);
  }
}

/** As `Reader.get`, for Blobs. */
export async function get(place: Place): Promise<Blob | undefined> {
  const first = await readPart(place, 0, STEP);
  if (first === undefined) return undefined;
  if (first.bytes.length === first.length) {
    const { head, length } = decodeHead(first.bytes);
    return toBlob(head, [first.bytes.subarray(length)]);
  }
  return inState(place, async (id) => {
    const begun = await readPart(place, 0, STEP, id);
    if (begun === undefined) return undefined;
    const { head, length } = decodeHead(begun.bytes);
    // Browsers keep the bytes of Blobs outside of the heap.
    const pieces = [new Blob([begun.bytes.subarray(length)])];
    await readParts(place, id, begun, begun.bytes.length, begun.length, (bytes) => pieces.push(new Blob([bytes])));
    return toBlob(head, pieces);
  });
}

/** Where the contents of a value begin; throws unless it is bytes or a Blob. */
function contentsAt({ target }: Place, part: Part): number {
  return target.value.isBlob ? decodeHead(part.bytes).length : 0;
}

function checkContents(call: string, { target: { name, value } }: Place): void {
  if (value.isBlob || value.id === 'bytes') return;
  throw new KvError(
    'KV_INVALID_ARGUMENT',
    `${call} is for the value codecs bytes and blob; collection "${name}" has ${value.id}`,
  );
}

/** Turns an offset into one from 0 to `length`; a negative one counts from the end. */
function clamp(offset: number, length: number): number {
  return Math.min(Math.max(offset < 0 ? length + offset : offset, 0), length);
}

function checkOffset(offset: unknown): void {
  if (Number.isSafeInteger(offset) || offset === Infinity || offset === -Infinity) return;
  throw new KvError('KV_INVALID_ARGUMENT', 'start and end of a range have to be whole numbers');
}

export async function getRange(place: Place, start = 0, end = Infinity): Promise<Uint8Array<ArrayBuffer> | undefined> {
  checkContents('getRange', place);
  checkOffset(start);
  checkOffset(end);
  const isDirect = !place.target.value.isBlob && start >= 0 && end >= 0 && end - start <= STEP;
  if (isDirect)
    return (
      await readPart(
        place,
        Math.min(start, Number.MAX_SAFE_INTEGER),
        Math.max(Math.min(end, Number.MAX_SAFE_INTEGER), 0),
      )
    )?.bytes;
  return inState(place, async (id) => {
    const begun = await readPart(place, 0, MAX_HEAD_BYTES, id);
    if (begun === undefined) return undefined;
    const at = contentsAt(place, begun);
    const from = at + clamp(start, begun.length - at);
    const to = at + clamp(end, begun.length - at);
    const bytes = new Uint8Array(Math.max(to - from, 0));
    let done = 0;
    await readParts(place, id, begun, from, to, (part) => {
      bytes.set(part, done);
      done += part.length;
    });
    return bytes;
  });
}

/** The source of a stream, with what the signal calls. */
interface Source extends UnderlyingDefaultSource<Uint8Array<ArrayBuffer>> {
  abort?: () => void;
}

function abort(source: Source): void {
  source.abort?.();
}

export async function getStream(
  place: Place,
  options: SignalOptions | undefined,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | undefined> {
  checkNames('getStream', options, SIGNAL);
  checkContents('getStream', place);
  const { signal } = options ?? {};
  checkSignal(signal);
  const { connection } = place.target;
  const held = place.view.id === 0 ? new Handle(connection, Op.snapshotClose, 'stream') : undefined;
  const id = (): number => held?.id ?? place.view.id;
  const release = (): void => held?.close();
  const source: Source = {};
  // Owned by the source: a browser may collect the stream's object while the stream is still read.
  held?.own(source, signal, abort);
  try {
    if (held !== undefined)
      connection.post(
        (writer) => writer.u8(Op.snapshotOpen).uv(id()),
        (reader) => reader.uv(),
      );
    const begun = await abortable(readPart(place, 0, MAX_HEAD_BYTES, id()), signal);
    if (begun === undefined) {
      release();
      return undefined;
    }
    let at = contentsAt(place, begun);
    source.start = (controller) => {
      source.abort = () => {
        release();
        controller.error(signal?.reason);
      };
    };
    source.cancel = release;
    source.pull = async (controller) => {
      try {
        checkSignal(signal);
        const to = Math.min(at + STEP, begun.length);
        await abortable(
          readParts(place, id(), begun, at, to, (bytes) => controller.enqueue(bytes)),
          signal,
        );
        at = to;
        if (at < begun.length) return;
        release();
        controller.close();
      } catch (error) {
        release();
        throw error;
      }
    };
    return new ReadableStream(source, { highWaterMark: 0 });
  } catch (error) {
    release();
    throw error;
  }
}

/** As `Writer.set`, for Blobs. */
export function set(place: Place, value: unknown, goal: Goal): Promise<void> {
  if (!isBlob(value))
    throw new KvError('KV_INVALID_VALUE', `the value codec blob stores Blobs and Files, not a ${typeof value}`);
  const head = encodeHead(headOf(value));
  return write(place, goal, () => PartSource.ofBlob(head, value, STEP), MAX_RESTARTS);
}

/** As `Writer.setStream`. */
export function setStream(
  place: Place,
  stream: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>,
  goal: Goal,
): Promise<void> {
  checkContents('setStream', place);
  const { type, name, lastModified }: StreamOptions = goal.options ?? {};
  let head: Uint8Array = new Uint8Array(0);
  if (place.target.value.isBlob) {
    const kept: BlobHead = {
      type: String(type ?? ''),
      ...(name === undefined ? {} : { name: String(name), lastModified: Number(lastModified ?? Date.now()) }),
    };
    head = encodeHead(kept);
  } else if (type !== undefined || name !== undefined || lastModified !== undefined) {
    throw new KvError('KV_INVALID_ARGUMENT', 'type, name and lastModified are for the value codec blob');
  }
  return write(place, goal, () => PartSource.ofStream(head, stream, STEP), 0);
}

async function write(place: Place, goal: Goal, open: () => PartSource, restarts: number): Promise<void> {
  if (place.target.indexes !== undefined) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `collection "${place.target.name}" has indexes, so its values cannot be written in parts`,
    );
  }
  for (let left = restarts; ; left--) {
    try {
      return await writeOnce(place, goal, open());
    } catch (error) {
      if (!isSnapshotLost(error)) throw error;
      if (left === 0) {
        throw new KvError(
          'KV_SNAPSHOT_LOST',
          'another tab took over the database while the value was written; nothing of it is stored, write it again',
          { cause: error, retryable: true },
        );
      }
    }
  }
}

async function writeOnce(
  { target, view, key }: Place,
  { scope, expiresAt, options, store }: Goal,
  source: PartSource,
): Promise<void> {
  const { connection, index, value } = target;
  const { signal } = options ?? {};
  const id = connection.newId();
  let offset = 0;
  let isOver = false;
  try {
    let part = await abortable(source.next(), signal);
    // A transaction keeps what it writes in memory until its commit.
    const whole = view.id !== 0 ? await abortable(source.rest(part), signal) : part;
    if (view.id !== 0 || part.length <= MAX_WHOLE_BYTES) {
      checkSignal(signal);
      isOver = true;
      const encoded: Encoded = { [ENCODED]: whole };
      return await promised(connection, store((value.isBlob ? encoded : whole) as never));
    }
    for (; part.length > 0; part = await abortable(source.next(), signal)) {
      checkSignal(signal);
      const [at, bytes] = [offset, part];
      const body = bodyOf(LazyOp.append, (body) => body.uv(id).uv(index).uv(at).bytes(bytes));
      await connection.requestLoading((writer) => writer.u8(Op.lazy).u8(0).bytes(body), ignore);
      offset += bytes.length;
    }
    checkSignal(signal);
    const body = bodyOf(LazyOp.store, (body) => body.uv(id).uv(index).bytes(key).uv(expiresAt));
    const stored: unknown = await connection.request(
      (writer) => scope.begin(writer, Op.lazy, options).bytes(body),
      (reader) => void reader.uv(),
    );
    // An engine that has yet to load the code for it is another one than that of the parts.
    if (stored === ASK) throw new KvError('KV_SNAPSHOT_LOST', 'the parts of the value are lost', { retryable: true });
    isOver = true;
  } catch (error) {
    source.end(error);
    throw error;
  } finally {
    if (!isOver)
      connection.post(
        (writer) =>
          writer
            .u8(Op.lazy)
            .u8(0)
            .bytes(bodyOf(LazyOp.discard, (body) => body.uv(id))),
        ignore,
      );
  }
}
