// A checksum of all entries of an object store. It finds changes that were made by accident, not forgeries.
import { valueCodecs } from 'mangrove-kv';

const codec = valueCodecs.structured();

/** A checksum of entries in their order. */
export class Digest {
  #one = 0x811c9dc5;
  #other = 0x9747b28c;
  #count = 0;

  /** Adds an entry, its value as it is stored. Throws what the codec throws for a value that it cannot take. */
  add(key: unknown, value: unknown): void {
    let [one, other] = [this.#one, this.#other];
    // Not together: the value may be nested as deep as one can be.
    for (const bytes of [codec.encode([key, this.#count++]), codec.encode(value)]) {
      for (const byte of bytes) {
        one = Math.imul(one ^ byte, 0x01000193);
        other = Math.imul(other ^ byte, 0x5bd1e995) ^ (other >>> 15);
      }
    }
    [this.#one, this.#other] = [one, other];
  }

  /** The checksum of what was added so far. */
  get text(): string {
    return [this.#count, this.#one >>> 0, this.#other >>> 0].join(' ');
  }
}
