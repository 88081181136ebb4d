import { PGliteWorker } from '@electric-sql/pglite/worker';
import { removeEntries } from './opfs.ts';
import type { Entry, Peer, Row } from './peer.ts';

const CHUNK = 1000;

interface Stored {
  readonly key: string;
  readonly value: string;
}

const CREATE = 'CREATE TABLE IF NOT EXISTS kv (key text COLLATE "C" PRIMARY KEY, value text NOT NULL)';
const PUT =
  'INSERT INTO kv SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT (key) DO UPDATE SET value = excluded.value';

const parse = (text: string): Row => JSON.parse(text) as Row;
const toEntry = ({ key, value }: Stored): Entry => [key, parse(value)];

export const peer: Peer = {
  async open(name, durability) {
    const worker = new Worker(new URL('./pglite-worker.ts', import.meta.url), { type: 'module' });
    const db = await PGliteWorker.create(worker, {
      dataDir: `opfs-ahp://${name}`,
      relaxedDurability: durability === 'relaxed',
      id: name,
    });
    await db.exec(CREATE);
    const putMany = async (entries: readonly Entry[]): Promise<void> => {
      await db.query(PUT, [entries.map(([key]) => key), entries.map(([, value]) => JSON.stringify(value))]);
    };
    const select = async (sql: string, values: unknown[]): Promise<Stored[]> =>
      (await db.query<Stored>(sql, values)).rows;
    return {
      putMany,
      async put(key, value) {
        await db.query('INSERT INTO kv VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value', [
          key,
          JSON.stringify(value),
        ]);
      },
      async get(key) {
        const [found] = await select('SELECT value FROM kv WHERE key = $1', [key]);
        return found === undefined ? undefined : parse(found.value);
      },
      async getMany(keys) {
        const found = new Map(
          (await select('SELECT key, value FROM kv WHERE key = ANY($1::text[])', [keys])).map(({ key, value }) => [
            key,
            value,
          ]),
        );
        return keys.map((key) => {
          const text = found.get(key);
          return text === undefined ? undefined : parse(text);
        });
      },
      async scan({ reverse, limit }, take) {
        const order = reverse ? 'key < $1 ORDER BY key DESC' : 'key > $1 ORDER BY key';
        let last = reverse ? '\u{10ffff}' : '';
        for (let left = limit; left > 0; ) {
          const rows = await select(`SELECT key, value FROM kv WHERE ${order} LIMIT $2`, [last, Math.min(CHUNK, left)]);
          const end = rows.at(-1);
          if (end === undefined) return;
          last = end.key;
          left -= rows.length;
          take(rows.map(toEntry));
        }
      },
      page: async (prefix, limit) =>
        (
          await select('SELECT key, value FROM kv WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3', [
            prefix,
            `${prefix}\u{10ffff}`,
            limit,
          ])
        ).map(toEntry),
      leads: () => db.isLeader,
      async close() {
        await db.close();
        worker.terminate();
      },
    };
  },
  destroy: (name) => removeEntries((entry) => entry === name),
};
