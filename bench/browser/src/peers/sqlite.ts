// The page's side of both SQLites, and the SQL of their workers.
import { Remote } from './rpc.ts';
import type { Entry, Row, Store } from './peer.ts';

/** A scan's part: an answer's copy should not take the page long. */
const CHUNK = 1000;

export const SQL = {
  create: 'CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID',
  put: 'INSERT OR REPLACE INTO kv VALUES (?, ?)',
  get: 'SELECT value FROM kv WHERE key = ?',
  first: 'SELECT key, value FROM kv WHERE key > ? ORDER BY key LIMIT ?',
  last: 'SELECT key, value FROM kv WHERE key < ? ORDER BY key DESC LIMIT ?',
  prefix: 'SELECT key, value FROM kv WHERE key >= ? AND key < ? ORDER BY key LIMIT ?',
} as const;

export type TextEntry = readonly [key: string, value: string];

const parse = (text: string): Row => JSON.parse(text) as Row;
const toEntry = ([key, text]: TextEntry): Entry => [key, parse(text)];
const toText = ([key, value]: Entry): TextEntry => [key, JSON.stringify(value)];

export async function openRemote(worker: Worker, ...options: unknown[]): Promise<Store> {
  const remote = new Remote(worker);
  try {
    await remote.call('open', ...options);
  } catch (error) {
    remote.terminate();
    throw error;
  }
  return {
    put: (key, value) => remote.call('putMany', [toText([key, value])]),
    putMany: (entries) => remote.call('putMany', entries.map(toText)),
    async get(key) {
      const [text] = await remote.call<(string | undefined)[]>('getMany', [key]);
      return text === undefined ? undefined : parse(text);
    },
    async getMany(keys) {
      const texts = await remote.call<(string | undefined)[]>('getMany', keys);
      return texts.map((text) => (text === undefined ? undefined : parse(text)));
    },
    async scan({ reverse, limit }, take) {
      const next = (from: string, count: number): Promise<TextEntry[]> => remote.call('scan', from, count, reverse);
      let ahead = next(reverse ? '\u{10ffff}' : '', Math.min(CHUNK, limit));
      for (let left = limit; left > 0; ) {
        const entries = await ahead;
        const last = entries.at(-1)?.[0];
        if (last === undefined) return;
        left -= entries.length;
        // The worker reads on while the page parses.
        if (left > 0) ahead = next(last, Math.min(CHUNK, left));
        take(entries.map(toEntry));
      }
    },
    async page(prefix, limit) {
      const entries = await remote.call<TextEntry[]>('page', prefix, `${prefix}\u{10ffff}`, limit);
      return entries.map(toEntry);
    },
    async close() {
      await remote.call('close');
      remote.terminate();
    },
  };
}
