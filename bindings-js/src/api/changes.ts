// The changes of one batch, encoded as they are added.
import { checkCount, ignore } from '../base/async.ts';
import { encodeKey, encodeValue } from '../wire/codecs.ts';
import { BatchKind } from '../wire/opcodes.ts';
import { RequestWriter } from '../wire/protocol.ts';
import { isPromise } from './schema.ts';
import type { Target } from '../wire/target.ts';

export class ChangeList {
  readonly #writer = new RequestWriter();
  /** Set once a value is validated asynchronously: what precedes the writer's contents. */
  #before: (Uint8Array | Promise<Uint8Array>)[] | undefined;
  /** Indexes that the engine does not know yet. */
  readonly #undeclared = new Set<Promise<void>>();
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** A view, valid until the next change. Complete only after `ready`. */
  get bytes(): Uint8Array {
    return this.#writer.view();
  }

  /** Validates the value first. `expiresAt` is in milliseconds since 1970; 0 means never. */
  set<K, V>(target: Target<K, V>, key: K, value: unknown, expiresAt: number): void {
    const { validate } = target;
    const valid = validate === undefined ? value as V : validate(value);
    if (validate === undefined || !isPromise(valid)) {
      this.put(target, key, valid as V, expiresAt);
      return;
    }
    const keyBytes = encodeKey(target, key);
    this.#declare(target);
    const later = valid.then((output) => {
      const writer = new RequestWriter();
      putSet(writer, target, key, keyBytes, output, expiresAt);
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
    if (target.indexes !== undefined) {
      this.#declare(target);
      putSet(writer, target, key, encodeKey(target, key), value, expiresAt);
      this.#length++;
      return;
    }
    const start = writer.length;
    writer.u8(expiresAt === 0 ? BatchKind.set : BatchKind.setExpiring).uv(target.index);
    if (writer.encoded(target.fastKey, key) && writer.encoded(target.fastValue, value)) {
      if (expiresAt !== 0) writer.uv(expiresAt);
    } else {
      // Encode before writing: the caller's codec may throw, or add to this very batch.
      writer.truncate(start);
      putSet(writer, target, key, encodeKey(target, key), value, expiresAt);
    }
    this.#length++;
  }

  #declare<K, V>(target: Target<K, V>): void {
    const declared = target.indexes?.declare(target);
    if (declared !== undefined) this.#undeclared.add(declared);
  }

  /**
   * Makes the batch fail unless the entry has this version or, for `null` and `undefined`, does not
   * exist.
   */
  check<K, V>(target: Target<K, V>, key: K, version: number | null | undefined): void {
    const keyBytes = encodeKey(target, key);
    this.#writer.u8(BatchKind.check).uv(target.index).bytes(keyBytes).uv(version === null || version === undefined ? 0 : checkCount('version', version) + 1);
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
    if (this.#undeclared.size === 0) return validated;
    return Promise.all([validated, ...this.#undeclared]).then(ignore);
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

function putSet<K, V>(
  writer: RequestWriter,
  target: Target<K, V>,
  key: K,
  keyBytes: Uint8Array,
  value: V,
  expiresAt: number,
): void {
  const valueBytes = encodeValue(target, value);
  const indexKeys = target.indexes?.keysOf(key, value);
  if (indexKeys !== undefined) {
    writer.u8(BatchKind.setIndexed).uv(target.index).bytes(keyBytes).bytes(valueBytes).uv(expiresAt).bytes(indexKeys);
    return;
  }
  writer.u8(expiresAt === 0 ? BatchKind.set : BatchKind.setExpiring).uv(target.index).bytes(keyBytes).bytes(valueBytes);
  if (expiresAt !== 0) writer.uv(expiresAt);
}
