import { ClassicLevel } from 'classic-level';

const SCAN_CHUNK = 1000;
/** So that a chunk is read whole. */
const HIGH_WATER_MARK = 1 << 20;

/** LevelDB has no numbers: 8 bytes whose order is the numbers'. */
const number = {
  name: 'number',
  format: 'buffer',
  encode(value) {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeUInt32BE(Math.floor(value / 2 ** 32), 0);
    bytes.writeUInt32BE(value >>> 0, 4);
    return bytes;
  },
  decode: (bytes) => bytes.readUInt32BE(0) * 2 ** 32 + bytes.readUInt32BE(4),
};

export async function open(directory, { ints, values, durable, cacheBytes }) {
  const valueEncoding = ints ? number : values === 'text' ? 'utf8' : 'buffer';
  const db = new ClassicLevel(directory, { keyEncoding: ints ? number : 'utf8', valueEncoding, cacheSize: cacheBytes });
  await db.open();
  const sync = { sync: durable };
  return {
    overlaps: true,
    write: (entries) =>
      db.batch(
        entries.map(([key, value]) => ({ type: 'put', key, value })),
        sync,
      ),
    put: (key, value) => db.put(key, value, sync),
    get: (key) => db.get(key),
    getSync: (key) => db.getSync(key),
    getMany: (keys) => db.getMany(keys),
    async scan(reverse) {
      const entries = db.iterator({ reverse, highWaterMarkBytes: HIGH_WATER_MARK });
      let count = 0;
      for (let chunk; (chunk = await entries.nextv(SCAN_CHUNK)).length > 0; ) count += chunk.length;
      await entries.close();
      return count;
    },
    range: (from, limit) => db.iterator({ gte: from, limit, highWaterMarkBytes: HIGH_WATER_MARK }).all(),
    // Without a transaction: nobody else takes.
    async take() {
      const [entry] = await db.iterator({ limit: 1 }).all();
      if (entry !== undefined) await db.del(entry[0], sync);
      return entry;
    },
    close: () => db.close(),
  };
}
