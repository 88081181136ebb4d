// What drivers are to an instance. Methods of a driver are called as methods of the instance.
import type { Callback } from './callbacks.ts';
import type { serializer } from './serializer.ts';

/** State of an instance's driver. */
export interface DbInfo extends LocalForageOptions {
  readonly keyPrefix?: string;
  readonly serializer?: typeof serializer;
}

/** The parts of an instance that drivers use. */
export interface Host {
  _dbInfo: DbInfo | null;
  readonly _config: LocalForageOptions;
  readonly _defaultConfig: LocalForageOptions;
  ready(): Promise<void>;
  keys(): Promise<string[]>;
}

/** Keys are strings. */
export function keyText(key: unknown): string {
  return String(key);
}

/** Which store `dropInstance` was asked to delete: all of a database if only its name is given. */
export function dropped(
  host: Host,
  options: LocalForageDbInstanceOptions | Callback<void> | undefined,
  callback: Callback<void> | undefined,
): { name: string; storeName: string | undefined; callback: Callback<void> | undefined } {
  const given = typeof options === 'function' ? {} : (options ?? {});
  // A name or storeName that is empty or undefined counts as none given, not as all stores.
  const { name, storeName } = given.name
    ? given
    : { name: host._config.name, storeName: given.storeName || host._config.storeName };
  return { name: name ?? '', storeName, callback: typeof options === 'function' ? options : callback };
}

/** A driver of this package. */
export interface BuiltIn {
  readonly _driver: string;
  readonly _support: boolean;
  _initStorage(this: Host, options: LocalForageOptions): Promise<void>;
  getItem(this: Host, key: unknown, callback?: Callback<unknown>): Promise<unknown>;
  setItem(this: Host, key: unknown, value: unknown, callback?: Callback<unknown>): Promise<unknown>;
  removeItem(this: Host, key: unknown, callback?: Callback<void>): Promise<void>;
  clear(this: Host, callback?: Callback<void>): Promise<void>;
  length(this: Host, callback?: Callback<number>): Promise<number>;
  key(this: Host, index: number, callback?: Callback<string | null>): Promise<string | null>;
  keys(this: Host, callback?: Callback<string[]>): Promise<string[]>;
  iterate(
    this: Host,
    iteratee: (value: unknown, key: string, iterationNumber: number) => unknown,
    callback?: Callback<unknown>,
  ): Promise<unknown>;
  dropInstance(
    this: Host,
    options?: LocalForageDbInstanceOptions | Callback<void>,
    callback?: Callback<void>,
  ): Promise<void>;
}
