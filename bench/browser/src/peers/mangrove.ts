import * as kv from 'mangrove-kv';
import { openIndexed } from './mangrove-indexed.ts';
import type { Peer, Row } from './peer.ts';

const CHUNK = 1000;

export const peerOf = ({ destroy, open }: Pick<typeof kv, 'destroy' | 'open'>): Peer => ({
  async open(name, durability) {
    const db = await open<string, Row>(name, { durability });
    return {
      put: (key, value) => db.set(key, value),
      putMany: (entries) => db.setMany(entries),
      get: (key) => db.get(key),
      getMany: (keys) => db.getMany(keys),
      async scan({ reverse, limit }, take) {
        await using entries = db.entries({ reverse, limit });
        for (let chunk; (chunk = await entries.nextMany(CHUNK)).length > 0; ) take(chunk);
      },
      page: (prefix, limit) => db.prefix(prefix, { limit }).toArray(),
      close: () => db.close(),
    };
  },
  openIndexed: (name) => openIndexed({ open }, name),
  async destroy(name) {
    await destroy(name);
  },
});

export const peer = peerOf(kv);

const encryption = { key: new Uint8Array(32).fill(7) };

/** With a key. */
export const encrypted = peerOf({
  destroy: kv.destroy,
  open: (name, options) => kv.open(name, { ...options, encryption }),
});
