// The changes of one batch, encoded when they are added.
import { checkCount } from './async.ts';
import { encodeKey, encodeValue } from './codecs.ts';
import { RequestWriter } from './protocol.ts';
import type { Target } from './reader.ts';

const SET = 0;
const DELETE = 1;
const SET_EXPIRING = 2;
const CHECK = 3;

export class ChangeList {
  readonly #writer = new RequestWriter();
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** A view that holds until the next change. */
  get bytes(): Uint8Array {
    return this.#writer.view();
  }

  /** `expiresAt` is 0 for an entry that does not expire. */
  set<K, V>(target: Target<K, V>, key: K, value: V, expiresAt: number): void {
    const keyBytes = encodeKey(target.key, key);
    const valueBytes = encodeValue(target.value, value);
    const kind = expiresAt === 0 ? SET : SET_EXPIRING;
    this.#writer.u8(kind).uv(target.index).bytes(keyBytes).bytes(valueBytes);
    if (expiresAt !== 0) this.#writer.uv(expiresAt);
    this.#length++;
  }

  /** Lets the batch through only if the entry is of this version, or, with `null`, if there is none. */
  check<K, V>(target: Target<K, V>, key: K, version: number | null): void {
    const keyBytes = encodeKey(target.key, key);
    this.#writer.u8(CHECK).uv(target.index).bytes(keyBytes).uv(version === null ? 0 : checkCount('version', version) + 1);
    this.#length++;
  }

  delete<K, V>(target: Target<K, V>, key: K): void {
    const keyBytes = encodeKey(target.key, key);
    this.#writer.u8(DELETE).uv(target.index).bytes(keyBytes);
    this.#length++;
  }

  clear(): void {
    this.#writer.reset(true);
    this.#length = 0;
  }
}
