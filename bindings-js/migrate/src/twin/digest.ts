// A checksum of all entries of an object store, computed synchronously: an IndexedDB transaction ends at the first turn
// in which it is asked for nothing. It finds changes that were made by accident, not forgeries.
import { valueCodecs } from 'mangrove-kv';
import { isBlob, isFile, substitute } from './stored.ts';

const codec = valueCodecs.structured();

/** Stands for a Blob, whose bytes cannot be read synchronously. */
function outlineOf(blob: Blob): object {
  return { type: blob.type, size: blob.size, ...(isFile(blob) && { name: blob.name, modified: blob.lastModified }) };
}

/** A checksum of entries in their order. */
export class Digest {
  #one = 0x811c9dc5;
  #other = 0x9747b28c;
  #count = 0;

  /** Adds an entry. Throws what the codec throws for a value that it cannot take. */
  add(key: unknown, value: unknown): void {
    const bytes = codec.encode([
      key,
      substitute(value, (object) => (isBlob(object) ? outlineOf(object) : undefined)),
      this.#count++,
    ]);
    let [one, other] = [this.#one, this.#other];
    for (const byte of bytes) {
      one = Math.imul(one ^ byte, 0x01000193);
      other = Math.imul(other ^ byte, 0x5bd1e995) ^ (other >>> 15);
    }
    [this.#one, this.#other] = [one, other];
  }

  /** The checksum of what was added so far. */
  get text(): string {
    return [this.#count, this.#one >>> 0, this.#other >>> 0].join(' ');
  }
}
