// Revisions of something small: objects that are created one after the other and never deleted. The
// newest one is found by asking for keys, because a listing may lag behind what was acknowledged.
import { logUnavailable } from '@mangrove-kv/replication';
import type { Bucket } from './bucket.ts';

export interface Revision {
  readonly revision: number;
  readonly bytes: Uint8Array;
}

export class Revisions {
  readonly #bucket: Bucket;
  readonly #keyOf: (revision: number) => string;
  /** The newest one that is known. */
  #newest: Revision | undefined;

  constructor(bucket: Bucket, keyOf: (revision: number) => string) {
    this.#bucket = bucket;
    this.#keyOf = keyOf;
  }

  /** The newest one, or undefined if there is none. One request if it is known already; otherwise O(log n). */
  async newest(): Promise<Revision | undefined> {
    const known = this.#newest?.revision ?? 0;
    let [there, step] = [known, 1];
    for (; await this.#has(there + step); step *= 2) there += step;
    for (let missing = there + step; missing - there > 1; ) {
      const middle = Math.floor((there + missing) / 2);
      if (await this.#has(middle)) there = middle;
      else missing = middle;
    }
    if (there > known) {
      const bytes = await this.read(there);
      if (bytes === undefined) throw logUnavailable(`${this.#keyOf(there)} was there, and could not be read`);
      this.#learn({ revision: there, bytes });
    }
    return this.#newest;
  }

  async read(revision: number): Promise<Uint8Array | undefined> {
    return (await this.#bucket.get(this.#keyOf(revision)))?.bytes;
  }

  /** Creates the revision after the newest one; false if another one may have been created meanwhile. */
  async create(revision: number, bytes: Uint8Array): Promise<boolean> {
    const isCreated = await this.#bucket.create(this.#keyOf(revision), bytes);
    if (isCreated) this.#learn({ revision, bytes });
    return isCreated;
  }

  #has(revision: number): Promise<boolean> {
    return this.#bucket.has(this.#keyOf(revision));
  }

  #learn(found: Revision): void {
    if (found.revision > (this.#newest?.revision ?? 0)) this.#newest = found;
  }
}
