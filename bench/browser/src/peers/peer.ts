// What a store has to do for the benchmark, in the terms of its users: keys are strings, values are plain objects.
import type { RxStorage } from 'rxdb/plugins/core';
import type { IndexedStore } from './indexed.ts';

export interface Row {
  readonly id: number;
  readonly name: string;
  readonly email: string;
  readonly city: string;
  readonly tags: readonly string[];
  readonly balance: number;
  readonly active: boolean;
}

export type Entry = readonly [key: string, value: Row];

/** `strict`: on the disk before the promise resolves. `relaxed`: the system may still lose it. */
export type Durability = 'strict' | 'relaxed';

export interface Store {
  put(key: string, value: Row): Promise<void>;
  /** One transaction. */
  putMany(entries: readonly Entry[]): Promise<void>;
  get(key: string): Promise<Row | undefined>;
  getMany(keys: readonly string[]): Promise<(Row | undefined)[]>;
  /** Reads keys and values from the first or the last key on, hands them to `take` in parts and stops after `limit` entries. */
  scan(options: { reverse: boolean; limit: number }, take: (entries: readonly Entry[]) => void): Promise<void>;
  /** The first entries whose keys begin with `prefix`. */
  page(prefix: string, limit: number): Promise<Entry[]>;
  /** Whether this one runs the database for all tabs; `undefined` where there is no such thing. */
  leads?(): boolean;
  close(): Promise<void>;
}

export interface Peer {
  open(name: string, durability: Durability): Promise<Store>;
  /** Where it has indexes: opens a durable store of rows with three of them. */
  openIndexed?(name: string): Promise<IndexedStore>;
  /** Where RxDB can store by it. */
  rxStorage?(durability: Durability): RxStorage<unknown, unknown>;
  /** Removes a closed store; nothing happens if there is none. */
  destroy(name: string): Promise<void>;
}

export class Unsupported extends Error {
  override readonly name = 'Unsupported';
}
