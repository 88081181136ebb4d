// The changes of one batch, encoded when they are added.
import { encodeKey, encodeValue } from './codecs.ts';
import { RequestWriter } from './protocol.ts';
import type { Target } from './reader.ts';

const SET = 0;
const DELETE = 1;

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

  set<K, V>(target: Target<K, V>, key: K, value: V): void {
    const keyBytes = encodeKey(target.key, key);
    const valueBytes = encodeValue(target.value, value);
    this.#writer.u8(SET).uv(target.index).bytes(keyBytes).bytes(valueBytes);
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
