// Damage to the objects of an archive: a restore is refused, or all of it is there.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { archiveLog, restoreArchive } from '../src/archive/index.ts';
import { MemoryLog, MemoryServer } from '../src/memory-log.ts';
import { decodeFrames } from '../../replication-s3/src/frames.ts';
import { s3Archive, s3Snapshots } from '../../replication-s3/src/index.ts';
import type { S3DatabaseOptions } from '../../replication-s3/src/index.ts';
import { collect, toStream } from '../src/wire.ts';
import type { Seal } from '../src/wire.ts';
import { Device } from './device.ts';
import { S3Memory } from './s3-memory.ts';

const collections = { notes: {} } as const;
const FOLDER = 'database/notes/archive/';
/** Of a frame: kind, length, checksum. */
const HEAD = 9;

const optionsOf = ({ options }: S3Memory, prefix = ''): S3DatabaseOptions => ({
  ...options,
  prefix,
  database: 'notes',
  probe: false,
});

type Refusal = Error & { readonly code?: string };

class Fixture {
  readonly s3 = new S3Memory();
  readonly seal: Seal | undefined;
  /** What devices had at the end. */
  wanted = '';

  constructor(seal: Seal | undefined) {
    this.seal = seal;
  }

  /** Three segments, and a snapshot of the second one's end. Of each round, one value may be large. */
  static async make(isSealed: boolean, large = 600): Promise<Fixture> {
    const key = isSealed
      ? ((await crypto.subtle.generateKey({ name: 'AES-GCM', length: 256 }, false, [
          'encrypt',
          'decrypt',
        ])) as CryptoKey)
      : undefined;
    const fixture = new Fixture(key && { key, database: 'notes' });
    const server = new MemoryServer();
    const { snapshots, archive, seal } = fixture;
    const device = await Device.start(server, { snapshots, seal, collections });
    const notes = device.db.collection('notes');
    const fill = async (round: number): Promise<void> => {
      for (const size of [0, 1, 60, large]) {
        await notes.set(`${round} of ${size}`, new Uint8Array(randomBytes(size)));
        await device.exchange();
      }
      await notes.set('short', round, { expireIn: 3_600_000 });
      await device.exchange();
      await notes.delete(`${round - 1} of 60`);
      await device.exchange();
    };
    for (let round = 0; round < 3; round++) {
      await fill(round);
      if (round === 1) await device.replica.compact();
      await archiveLog({ log: new MemoryLog(server), archive, snapshots, seal, snapshot: true });
    }
    fixture.wanted = await contentOf(device.db);
    await device.stop();
    return fixture;
  }

  get archive(): ReturnType<typeof s3Archive> {
    return s3Archive(optionsOf(this.s3));
  }

  get snapshots(): ReturnType<typeof s3Snapshots> {
    return s3Snapshots(optionsOf(this.s3));
  }

  /** Names of the objects of the archive. */
  get names(): string[] {
    return [...this.s3.objects.keys()].filter((name) => name.startsWith(FOLDER)).sort();
  }

  object(name: string): Uint8Array {
    return this.s3.objects.get(name) as Uint8Array;
  }

  /** Resolves to the refusal, or to undefined if everything was restored. Anything else fails. */
  async restore(what: string): Promise<Refusal | undefined> {
    const db = await open('restored', { storage: 'memory' });
    const plan = this.archive
      .restore()
      .then((found) =>
        restoreArchive(db as never, { plan: found, snapshots: this.snapshots, seal: this.seal, collections }),
      );
    const refusal = await plan.then(
      () => undefined,
      (error: Refusal) => error,
    );
    if (refusal === undefined) assert.equal(await contentOf(db), this.wanted, `${what}: restored, and not whole`);
    await db.close();
    return refusal;
  }

  /** What is put in place of an object has to be found. */
  async refuses(name: string, bytes: Uint8Array, what: string, byte?: number): Promise<void> {
    const good = new Map(this.s3.objects);
    // With the snapshot, the segments before it are not read.
    if (name.includes('/segment/')) this.withoutSnapshot();
    this.s3.objects.set(name, bytes);
    isRefusal(await this.restore(`${name}, ${what}`), name, `${name}, ${what}`, byte);
    for (const [key, object] of good) this.s3.objects.set(key, object);
  }

  withoutSnapshot(): void {
    for (const name of this.names) if (name.includes('/snapshot/')) this.s3.objects.delete(name);
  }
}

function isRefusal(error: Refusal | undefined, name: string, what: string, byte?: number): void {
  assert.ok(error !== undefined, `${what}: was not found`);
  const { code, message } = error;
  const names =
    message.includes(`${name} is damaged at byte ${byte === undefined ? '' : `${byte}:`}`) &&
    message.includes('put a good copy of it in its place');
  if (code !== 'KV_CORRUPT' || !names || message.includes('skipDamaged')) assert.fail(`${what}: ${code} ${message}`);
}

async function contentOf(db: Database): Promise<string> {
  const entries = await db.collection('notes').entries({ meta: true }).toArray();
  return JSON.stringify(
    entries.map(({ key, value, expiresAt }) => [
      key,
      value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value,
      expiresAt,
    ]),
  );
}

/** Where the frames of an object begin, as the format says. */
function framesOf(bytes: Uint8Array): number[] {
  const found: number[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += HEAD + view.getUint32(at + 1)) found.push(at);
  return found;
}

function flipped(bytes: Uint8Array, at: number, bit: number): Uint8Array {
  const bad = bytes.slice();
  bad[at] = (bad[at] as number) ^ (1 << bit);
  return bad;
}

/** The name that is in an object: copies of snapshots are as good in another store. */
const nameIn = (key: string): string => key.replace(`${FOLDER}snapshots/`, '');

function readingFails(key: string, bytes: Uint8Array, what: string, byte?: number): void {
  let error: Refusal | undefined;
  try {
    for (const content of decodeFrames(nameIn(key), bytes, key)) assert.ok(content);
  } catch (thrown) {
    error = thrown as Refusal;
  }
  isRefusal(error, key, what, byte);
}

for (const isSealed of [false, true]) {
  const suffix = isSealed ? ', sealed' : '';

  test(`each bit of each object of an archive counts, and each byte is needed${suffix}`, async () => {
    const fixture = await Fixture.make(isSealed);
    assert.equal(await fixture.restore('as it is'), undefined);
    assert.deepEqual(
      fixture.names.map((name) => name.slice(FOLDER.length).split('/')[0]),
      ['segment', 'segment', 'segment', 'snapshot', 'snapshots'],
    );
    for (const name of fixture.names) {
      const bytes = fixture.object(name).slice();
      const frames = framesOf(bytes);
      assert.ok(
        frames.length >= 3 && frames.at(-1) === bytes.length - HEAD - 4,
        `${name} has a first frame, content and an end`,
      );
      assert.equal([...decodeFrames(nameIn(name), bytes)].length, frames.length - 2);
      for (let at = 0; at < bytes.length; at++) {
        const frame = frames.filter((begin) => begin <= at).at(-1);
        readingFails(name, bytes.subarray(0, at), `${name}, cut at ${at}`, frame);
        for (let bit = 0; bit < 8; bit++) {
          bytes[at] = (bytes[at] as number) ^ (1 << bit);
          readingFails(name, bytes, `${name}, bit ${bit} of byte ${at}`, frame);
          bytes[at] = (bytes[at] as number) ^ (1 << bit);
        }
      }
      // Frames that are whole, and not in their place.
      for (const [index, begin] of frames.entries()) {
        const [end, last = bytes.length] = [frames[index + 1] ?? bytes.length, frames[index + 2]];
        const [before, frame, next, after] = [
          bytes.subarray(0, begin),
          bytes.subarray(begin, end),
          bytes.subarray(end, last),
          bytes.subarray(last),
        ];
        readingFails(name, Buffer.concat([before, next, after]), `${name} without frame ${index}`);
        readingFails(name, Buffer.concat([before, frame, frame, next, after]), `${name} with frame ${index} twice`);
        if (next.length > 0)
          readingFails(
            name,
            Buffer.concat([before, next, frame, after]),
            `${name} with frames ${index} and ${index + 1} swapped`,
          );
      }
    }
  });

  test(`a restore from a damaged archive is refused, and says where the damage is${suffix}`, async () => {
    const fixture = await Fixture.make(isSealed);
    for (const name of fixture.names) {
      const good = fixture.object(name);
      const frames = framesOf(good);
      for (const [index, begin] of frames.entries()) {
        const end = frames[index + 1] ?? good.length;
        // Of each frame kind or length, checksum, and content: here another bit, there another field.
        for (const at of [
          begin + (index % 5),
          begin + 5 + (index % 4),
          begin + HEAD + ((index * 5) % (end - begin - HEAD)),
        ])
          await fixture.refuses(name, flipped(good, at, at % 8), `flipped at ${at}`, begin);
        await fixture.refuses(name, good.slice(0, begin), `cut at ${begin}`, begin);
      }
      await fixture.refuses(name, good.slice(0, -1), 'without its last byte', frames.at(-1));
      for (const other of fixture.names.filter((each) => each !== name))
        await fixture.refuses(name, fixture.object(other), `with what ${other} has`, 0);
    }
  });
}

test('what is before the damage can be restored', async () => {
  const fixture = await Fixture.make(false);
  const name = fixture.names[1] as string;
  const good = fixture.object(name);
  fixture.s3.objects.set(name, flipped(good, framesOf(good)[4] as number, 0));
  // The snapshot is after the damage.
  fixture.withoutSnapshot();
  const restored = async (
    position = Infinity,
  ): Promise<{ readonly db: Database; readonly report: Awaited<ReturnType<typeof restoreArchive>> }> => {
    const db = await open('restored', { storage: 'memory' });
    return {
      db,
      report: await restoreArchive(db as never, {
        plan: await fixture.archive.restore({ position }),
        snapshots: fixture.snapshots,
        collections,
      }),
    };
  };
  const error = await restored().then(
    () => undefined,
    (error: Error) => error,
  );
  const position = Number(/or restore up to position (\d+)/.exec(error?.message ?? '')?.[1]);
  const { db, report } = await restored(position);
  assert.deepEqual([report.position, report.hasMore], [position, true]);
  // All of the first segment, and three of the second one.
  assert.equal(position, 8);
  assert.equal(
    await db
      .collection('notes')
      .get('0 of 600')
      .then((value) => (value as Uint8Array).length),
    600,
  );
  await db.close();
  await assert.rejects(
    fixture.archive.restore({ position: position + 1 }).then(async ({ records }) => {
      for await (const each of records) assert.ok(each.position <= position);
    }),
    { code: 'KV_CORRUPT' },
  );
});

test('the copy of a snapshot in the object store is good in the archive, too', async () => {
  const fixture = await Fixture.make(false);
  const name = fixture.names.at(-1) as string;
  fixture.s3.objects.set(name, new Uint8Array());
  isRefusal(await fixture.restore('without the snapshot'), name, 'without the snapshot', 0);
  fixture.s3.objects.set(name, fixture.object(name.slice(FOLDER.length)));
  assert.equal(await fixture.restore('with the copy'), undefined);
  // Nor is it needed while the archive has all records.
  fixture.s3.objects.set(name, new Uint8Array());
  fixture.withoutSnapshot();
  assert.equal(await fixture.restore('from the first record on'), undefined);
});

test('an archive with a damaged end is not filled on', async () => {
  const fixture = await Fixture.make(false);
  const name = fixture.names[2] as string;
  fixture.s3.objects.set(name, fixture.object(name).slice(0, -1));
  await assert.rejects(fixture.archive.position(), { code: 'KV_CORRUPT' });
  await assert.rejects(fixture.archive.archive(new MemoryLog(new MemoryServer())), { code: 'KV_CORRUPT' });
});

test('objects of another archive of the same database are refused', async () => {
  const s3 = new S3Memory();
  const server = new MemoryServer();
  const [one, two] = ['one/', 'two/'].map((prefix) => s3Archive(optionsOf(s3, prefix))) as [
    ReturnType<typeof s3Archive>,
    ReturnType<typeof s3Archive>,
  ];
  const log = new MemoryLog(server);
  for (let seq = 1; seq <= 3; seq++) {
    await log.append(new Uint8Array([seq]), { idempotencyKey: `a:${seq}` });
    if (seq === 1) await one.archive(log);
  }
  await two.archive(log);
  const [first, second] = ['one/', 'two/'].map((prefix) => `${prefix}${FOLDER}segment/${'0'.repeat(16)}`) as [
    string,
    string,
  ];
  s3.objects.set(second, s3.objects.get(first) as Uint8Array);
  const { records } = await two.restore();
  await assert.rejects(records[Symbol.asyncIterator]().next(), {
    code: 'KV_CORRUPT',
    message: new RegExp(`${second} .*it is ${first}`),
  });
});

for (const isSealed of [false, true]) {
  test(`a large value that is damaged, cut off, another one or gone ends a restore${isSealed ? ', sealed' : ''}`, async () => {
    const fixture = await Fixture.make(isSealed, 300_000);
    const values = [...fixture.s3.objects.keys()].filter((name) => name.startsWith('snapshots/object/blob/')).sort();
    assert.equal(values.length, 3);
    assert.equal(await fixture.restore('as it is'), undefined);
    // With the snapshot, two of them are not read.
    fixture.withoutSnapshot();
    for (const [index, name] of values.entries()) {
      const good = fixture.object(name);
      const other = fixture.object(values[(index + 1) % values.length] as string);
      const bad = [...framesOf(good), good.length - 1, good.length >> 1].flatMap((at) => [
        flipped(good, at, at % 8),
        good.slice(0, at),
      ]);
      for (const bytes of [...bad, other, new Uint8Array()]) {
        fixture.s3.objects.set(name, bytes);
        assert.equal((await fixture.restore(`${name} with ${bytes.length} bytes`))?.code, 'KV_CORRUPT');
      }
      fixture.s3.objects.delete(name);
      assert.equal((await fixture.restore(`without ${name}`))?.code, 'KV_NOT_FOUND');
      fixture.s3.objects.set(name, good);
    }
    assert.equal(await fixture.restore('as it was'), undefined);
  });
}

test('parts of large snapshots are checked, too', async () => {
  const s3 = new S3Memory();
  const store = s3Snapshots(optionsOf(s3));
  const value = new Uint8Array(17 << 20).map((_, at) => at >> 12);
  await store.put('large', toStream(value));
  const read = async (): Promise<Uint8Array | undefined> => {
    const stream = await store.get('large');
    return stream && collect(stream);
  };
  assert.deepEqual(await read(), value);
  const parts = [...s3.objects.keys()].filter((key) => key.includes('/part/')).sort();
  assert.equal(parts.length, 3);
  const refused = async (changes: readonly (readonly [string, Uint8Array])[], where: string): Promise<void> => {
    const before = changes.map(([key]) => [key, s3.objects.get(key) as Uint8Array] as const);
    for (const [key, bytes] of changes) s3.objects.set(key, bytes);
    await assert.rejects(
      read(),
      (error: Refusal) => error.code === 'KV_CORRUPT' && error.message.includes(`${where} is damaged at byte`),
    );
    for (const [key, bytes] of before) s3.objects.set(key, bytes);
  };
  const [a, b] = parts.map((key) => [key, s3.objects.get(key) as Uint8Array] as const) as [
    readonly [string, Uint8Array],
    readonly [string, Uint8Array],
  ];
  await refused(
    [
      [a[0], b[1]],
      [b[0], a[1]],
    ],
    a[0],
  );
  await refused([[b[0], flipped(b[1], 5_000_000, 3)]], b[0]);
  await refused([[b[0], b[1].slice(0, -13)]], b[0]);
  await refused([[b[0], new Uint8Array()]], b[0]);
  assert.deepEqual(await read(), value);
  // What is damaged can be deleted, as compactions do.
  s3.objects.set('snapshots/object/large', new Uint8Array());
  await assert.rejects(store.get('large'), { code: 'KV_CORRUPT' });
  await store.delete('large');
  assert.equal(await store.get('large'), undefined);
});
