// The package, with a key wherever the caller gives none.
import * as plain from 'mangrove-kv';

export * from 'mangrove-kv';

const encryption = { key: new Uint8Array(32).fill(7) };

function withKey(options) {
  if (options === undefined) return { encryption };
  return typeof options === 'object' && options !== null && !('encryption' in options)
    ? { encryption, ...options }
    : options;
}

export const open = (name, options) => plain.open(name, withKey(options));
export const openSync = (name, options) => plain.openSync(name, withKey(options));
export const restore = (name, backup, options) => plain.restore(name, backup, withKey(options));
export const recover = (name, into, options) => plain.recover(name, into, withKey(options));
