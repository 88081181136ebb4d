// The driver that stands in for localForage's on IndexedDB, under its name: a database for each `name`, in it a
// collection for each `storeName`.
import { KvError } from 'mangrove-kv';
import { TwinStore, checkTwinOptions } from '@mangrove-kv/migrate/internal';
import type { TwinOptions } from '@mangrove-kv/migrate/internal';
import { calling } from './callbacks.ts';
import { dropped, keyText } from './driver.ts';
import type { BuiltIn, Host } from './driver.ts';

/** One for each store, so that calls of all its instances keep their order. */
const twins = new Map<string, TwinStore>();

function twinOf(name: string, store: string, config: LocalForageOptions): TwinStore {
  const options: TwinOptions = {
    directory: config.directory,
    storage: config.storage,
    durability: config.durability,
    keepSource: config.keepSource,
    onUnmovable: config.onUnmovable,
    indexedDB: config.indexedDB,
  };
  checkTwinOptions('config', options);
  const place = JSON.stringify([config.directory, name, store]);
  const twin = twins.get(place) ?? new TwinStore({ name, store }, 'localforage', options);
  twins.set(place, twin);
  return twin;
}

/** The store of an instance. */
export function twinFor({ _dbInfo, _config }: Pick<Host, '_dbInfo' | '_config'>): TwinStore {
  const config = _dbInfo ?? _config;
  return twinOf(config.name ?? '', config.storeName ?? '', config);
}

async function twinIn(host: Host): Promise<TwinStore> {
  await host.ready();
  return twinFor(host);
}

/** A Blob as old versions of localForage store it where IndexedDB takes none. */
interface EncodedBlob {
  readonly __local_forage_encoded_blob: true;
  readonly data: string;
  readonly type: string;
}

function decoded(value: unknown): unknown {
  const blob = value as Partial<EncodedBlob> | null | undefined;
  if (typeof blob !== 'object' || !blob?.__local_forage_encoded_blob) return value;
  const bytes = Uint8Array.from(atob(blob.data ?? ''), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: blob.type ?? '' });
}

export const mangroveDriver: BuiltIn = {
  _driver: 'asyncStorage',
  _support: true,

  async _initStorage(options) {
    this._dbInfo = { ...options };
    try {
      await twinFor(this).open();
    } catch (error) {
      // The next driver has to do where there can be no database. After any other failure it would be empty in place of
      // the data, so calls try again, and report the failure.
      if (error instanceof KvError && error.code === 'KV_UNSUPPORTED') throw error;
    }
  },

  getItem(key, callback) {
    const read = async (): Promise<unknown> => {
      const at = keyText(key);
      return decoded(await (await twinIn(this)).get(at)) ?? null;
    };
    return calling(read(), callback);
  },

  setItem(key, value, callback) {
    const write = async (): Promise<unknown> => {
      const at = keyText(key);
      // `null` is `undefined` in the databases of localForage.
      await (await twinIn(this)).write([[at, value === null ? undefined : value]]);
      return value === undefined ? null : value;
    };
    return calling(write(), callback);
  },

  removeItem(key, callback) {
    const remove = async (): Promise<void> => {
      const at = keyText(key);
      await (await twinIn(this)).delete([at]);
    };
    return calling(remove(), callback);
  },

  clear(callback) {
    return calling(
      twinIn(this).then((twin) => twin.clear()),
      callback,
    );
  },

  length(callback) {
    return calling(
      twinIn(this).then((twin) => twin.count()),
      callback,
    );
  },

  key(index, callback) {
    const read = async (): Promise<string | null> => {
      const at = Math.trunc(index);
      if (!(at >= 0)) return null;
      return ((await (await twinIn(this)).keyAt(at)) ?? null) as string | null;
    };
    return calling(read(), callback);
  },

  keys(callback) {
    return calling(
      twinIn(this).then((twin) => twin.keys() as Promise<string[]>),
      callback,
    );
  },

  iterate(iteratee, callback) {
    let number = 1;
    return calling(
      twinIn(this).then((twin) => twin.visit((value, key) => iteratee(decoded(value), key as string, number++))),
      callback,
    );
  },

  dropInstance(options, given) {
    const { name, storeName, callback } = dropped(this, options, given);
    if (!name) return calling(Promise.reject(new Error('Invalid arguments')), callback);
    const config = this._config;
    const drop = async (): Promise<void> => {
      await twinOf(name, storeName ?? config.storeName ?? '', config).drop(storeName ? [storeName] : undefined);
    };
    return calling(drop(), callback);
  },
};
