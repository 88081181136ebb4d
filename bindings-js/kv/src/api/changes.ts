// The changes of one batch, encoded as they are added.
import { checkCount, ignore } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import { encodeKey, encodeValue } from '../wire/codecs.ts';
import { BatchKind } from '../wire/opcodes.ts';
import { RequestWriter } from '../wire/protocol.ts';
import { isPromise } from './schema.ts';
import type { Target } from '../wire/collection-target.ts';

interface IndexedWrites {
  /** Returns a promise while the engine does not know the indexes. */
  readonly declare: () => Promise<void> | undefined;
  readonly forget: () => void;
}

export class ChangeList {
  readonly #writer = new RequestWriter();
  /** Set once a value is validated or read asynchronously: what precedes the writer's contents. */
  #before: (Uint8Array | Promise<Uint8Array>)[] | undefined;
  /** Declare the indexes of what is written. */
  readonly #indexed = new Map<unknown, IndexedWrites>();
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Bytes of everything that was added, but what is validated or read asynchronously. */
  get byteLength(): number {
    return (this.#before ?? []).reduce(
      (sum, part) => sum + (part instanceof Uint8Array ? part.length : 0),
      this.#writer.length,
    );
  }

  /** A view, valid until the next change. Complete only after `ready`. */
  get bytes(): Uint8Array {
    return this.#writer.view();
  }

  /** Validates the value first. `expiresAt` is in milliseconds since 1970; 0 means never. */
  set<K, V>(target: Target<K, V>, key: K, value: unknown, expiresAt: number): void {
    const {
      validate,
      value: { whole },
    } = target;
    let valid = validate === undefined ? (value as V) : validate(value);
    if (whole !== undefined) {
      if (target.indexes !== undefined)
        throw new KvError('KV_INVALID_ARGUMENT', `collection "${target.name}" has indexes, so it cannot hold Blobs`);
      valid = validate !== undefined && isPromise(valid) ? valid.then(whole) : whole(valid as V);
    }
    if ((validate === undefined && whole === undefined) || !isPromise(valid)) {
      this.put(target, key, valid as V, expiresAt);
      return;
    }
    const keyBytes = encodeKey(target, key);
    this.#declare(target);
    const later = valid.then((output) => {
      const writer = new RequestWriter();
      const indexKeys = target.indexes?.keysOf(key, output).slice();
      putSet(writer, target.index, keyBytes, encodeValue(target, output), expiresAt, indexKeys);
      return writer.view();
    });
    // It may reject before `ready` awaits it.
    later.catch(ignore);
    this.#before ??= [];
    this.#before.push(this.#writer.view().slice(), later);
    this.#writer.reset(false);
    this.#length++;
  }

  /** Like `set`, for a value that is already validated. */
  put<K, V>(target: Target<K, V>, key: K, value: V, expiresAt: number): void {
    const writer = this.#writer;
    this.#declare(target);
    // Before anything is written: the functions of indexes may add to this very batch.
    const indexKeys = target.indexes?.keysOf(key, value);
    const start = writer.length;
    writer.u8(kindOf(indexKeys, expiresAt)).uv(target.index);
    if (writer.encoded(target.fastKey, key) && writer.encoded(target.fastValue, value)) {
      putRest(writer, expiresAt, indexKeys);
    } else {
      // Encode before writing: the caller's codec may throw, or add to this very batch.
      writer.truncate(start);
      const kept = indexKeys?.slice();
      putSet(writer, target.index, encodeKey(target, key), encodeValue(target, value), expiresAt, kept);
    }
    this.#length++;
  }

  #declare<K, V>(target: Target<K, V>): void {
    const { indexes } = target;
    if (indexes === undefined || this.#indexed.has(target)) return;
    this.#indexed.set(target, { declare: () => indexes.declare(target), forget: () => indexes.forget(target) });
  }

  /** Whether anything is written to a collection with indexes. */
  get isIndexed(): boolean {
    return this.#indexed.size > 0;
  }

  /**
   * Called with the failure of the batch: indexes that the engine no longer has are declared again
   * by the next write.
   */
  failed(error: unknown): void {
    if ((error as Partial<KvError>).code !== 'KV_INDEX_MISMATCH') return;
    for (const { forget } of this.#indexed.values()) forget();
  }

  /**
   * Makes the batch fail unless the entry has this version or, for `null` and `undefined`, does not
   * exist.
   */
  check<K, V>(target: Target<K, V>, key: K, version: number | null | undefined): void {
    const keyBytes = encodeKey(target, key);
    this.#writer
      .u8(BatchKind.check)
      .uv(target.index)
      .bytes(keyBytes)
      .uv(version === null || version === undefined ? 0 : checkCount('version', version) + 1);
    this.#length++;
  }

  delete<K, V>(target: Target<K, V>, key: K): void {
    const keyBytes = encodeKey(target, key);
    this.#writer.u8(BatchKind.delete).uv(target.index).bytes(keyBytes);
    this.#length++;
  }

  /**
   * Waits for asynchronously validated values, and for the engine to know the indexes; undefined if
   * neither is needed.
   */
  ready(): Promise<void> | undefined {
    const validated = this.#validated();
    if (!this.isIndexed) return validated;
    const undeclared = [...this.#indexed.values()]
      .map(({ declare }) => declare())
      .filter((declared) => declared !== undefined);
    if (undeclared.length === 0) return validated;
    return Promise.all([validated, ...undeclared]).then(ignore);
  }

  #validated(): Promise<void> | undefined {
    if (this.#before === undefined) return undefined;
    const parts = [...this.#before, this.#writer.view().slice()];
    return Promise.all(parts).then((all) => {
      this.#writer.reset(false);
      for (const part of all) this.#writer.raw(part);
    });
  }
}

function putSet(
  writer: RequestWriter,
  collection: number,
  keyBytes: Uint8Array,
  valueBytes: Uint8Array,
  expiresAt: number,
  indexKeys: Uint8Array | undefined,
): void {
  writer.u8(kindOf(indexKeys, expiresAt)).uv(collection).bytes(keyBytes).bytes(valueBytes);
  putRest(writer, expiresAt, indexKeys);
}

function kindOf(indexKeys: Uint8Array | undefined, expiresAt: number): number {
  if (indexKeys !== undefined) return BatchKind.setIndexed;
  return expiresAt === 0 ? BatchKind.set : BatchKind.setExpiring;
}

/** Writes what follows the value. */
function putRest(writer: RequestWriter, expiresAt: number, indexKeys: Uint8Array | undefined): void {
  if (indexKeys !== undefined) writer.uv(expiresAt).bytes(indexKeys);
  else if (expiresAt !== 0) writer.uv(expiresAt);
}
