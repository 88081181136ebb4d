// The driver on localStorage, in localForage's format: it reads what localForage wrote.
import { calling } from './callbacks.ts';
import { dropped, keyText } from './driver.ts';
import type { BuiltIn, Host } from './driver.ts';
import { serializer } from './serializer.ts';

function isSupported(): boolean {
  try {
    // Node warns of its own, which keeps nothing unless it is given a file.
    const own = Object.getOwnPropertyDescriptor(globalThis, 'localStorage');
    const { process } = globalThis as { process?: { versions?: { node?: string } } };
    if (own?.get !== undefined && process?.versions?.node !== undefined && typeof document === 'undefined')
      return false;
    return typeof localStorage !== 'undefined' && typeof localStorage.setItem === 'function';
  } catch {
    return false;
  }
}

/** A browser may refuse to store anything, but what is there can be read. */
function isUsable(): boolean {
  const key = '_localforage_support_test';
  try {
    localStorage.setItem(key, 'true');
    localStorage.removeItem(key);
    return true;
  } catch {
    return localStorage.length > 0;
  }
}

function prefixOf(host: Host, name: string, storeName: string | undefined): string {
  return storeName === host._defaultConfig.storeName ? `${name}/` : `${name}/${storeName}/`;
}

async function prefixIn(host: Host): Promise<string> {
  await host.ready();
  return host._dbInfo?.keyPrefix ?? '';
}

/** All keys of localStorage that start with a prefix. */
function keysWith(prefix: string): string[] {
  return Array.from({ length: localStorage.length }, (_, index) => localStorage.key(index) ?? '').filter((key) =>
    key.startsWith(prefix),
  );
}

function read(key: string): unknown {
  const text = localStorage.getItem(key);
  return text ? serializer.deserialize(text) : text;
}

function removeAll(prefix: string): void {
  for (const key of keysWith(prefix)) localStorage.removeItem(key);
}

export const localStorageDriver: BuiltIn = {
  _driver: 'localStorageWrapper',
  _support: isSupported(),

  async _initStorage(options) {
    if (!isUsable()) throw new Error('localStorage cannot be used here');
    const keyPrefix = prefixOf(this, options.name ?? '', options.storeName);
    this._dbInfo = { ...options, keyPrefix, serializer };
  },

  getItem(key, callback) {
    const at = keyText(key);
    return calling(
      prefixIn(this).then((prefix) => read(prefix + at)),
      callback,
    );
  },

  setItem(key, value, callback) {
    const at = keyText(key);
    const item = value === undefined ? null : value;
    const write = async (): Promise<unknown> => {
      const prefix = await prefixIn(this);
      const text = await new Promise<string>((resolve, reject) => {
        serializer.serialize(item, (result, error) => (error ? reject(error) : resolve(result as string)));
      });
      localStorage.setItem(prefix + at, text);
      return item;
    };
    return calling(write(), callback);
  },

  removeItem(key, callback) {
    const at = keyText(key);
    return calling(
      prefixIn(this).then((prefix) => localStorage.removeItem(prefix + at)),
      callback,
    );
  },

  clear(callback) {
    return calling(prefixIn(this).then(removeAll), callback);
  },

  length(callback) {
    return calling(
      this.keys().then((keys) => keys.length),
      callback,
    );
  },

  key(index, callback) {
    return calling(
      prefixIn(this).then((prefix) => keysWith(prefix)[index]?.slice(prefix.length) ?? null),
      callback,
    );
  },

  keys(callback) {
    return calling(
      prefixIn(this).then((prefix) => keysWith(prefix).map((key) => key.slice(prefix.length))),
      callback,
    );
  },

  iterate(iteratee, callback) {
    const visit = async (): Promise<unknown> => {
      const prefix = await prefixIn(this);
      let number = 1;
      for (const key of keysWith(prefix)) {
        const result = iteratee(read(key), key.slice(prefix.length), number++);
        if (result !== undefined) return result;
      }
      return undefined;
    };
    return calling(visit(), callback);
  },

  dropInstance(options, given) {
    const { name, storeName, callback } = dropped(this, options, given);
    if (!name) return calling(Promise.reject(new Error('Invalid arguments')), callback);
    const prefix = storeName ? prefixOf(this, name, storeName) : `${name}/`;
    return calling(
      Promise.resolve().then(() => removeAll(prefix)),
      callback,
    );
  },
};
