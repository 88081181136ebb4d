// What every RemoteLog has to do, over a factory, so that each implementation can be tested.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { LoggedRecord, Position, RemoteLog } from '../../src/remote-log.ts';

export interface LogFactory {
  /** Opens the log of a database as a device. */
  open(database: string, device: string): RemoteLog | Promise<RemoteLog>;
}

export const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
export const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
export const hasCode =
  (code: string) =>
  (error: unknown): boolean =>
    (error as { readonly code?: unknown }).code === code;

/** All records after a position, `limit` at a time. */
export async function readAll(log: RemoteLog, after: Position = 0, limit = 100): Promise<LoggedRecord[]> {
  const all: LoggedRecord[] = [];
  for (;;) {
    const records = await log.read(all.at(-1)?.position ?? after, limit);
    if (records.length === 0) return all;
    all.push(...records);
  }
}

/** Waits until a log has at least as many records: what one server has taken reaches the others later. */
export async function readCount(log: RemoteLog, count: number, after: Position = 0): Promise<LoggedRecord[]> {
  for (let tries = 0; ; tries++) {
    const records = await readAll(log, after);
    if (records.length >= count || tries > 200) return records;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

export function testLog(name: string, factory: () => LogFactory | Promise<LogFactory>): void {
  let databases = 0;
  const contract = (what: string, run: (open: (device: string) => Promise<RemoteLog>) => Promise<void>): void => {
    test(`${name}: ${what}`, async () => {
      const { open } = await factory();
      const database = `contract ${++databases}`;
      const opened: RemoteLog[] = [];
      try {
        await run(async (device) => {
          const log = await open(database, device);
          opened.push(log);
          return log;
        });
      } finally {
        await Promise.all(opened.map((log) => log.close()));
      }
    });
  };

  contract('an empty log has no records and no manifest', async (open) => {
    const log = await open('a');
    assert.deepEqual(await log.read(0, 10), []);
    assert.equal(await log.manifest(), undefined);
    assert.equal(await log.at(1), undefined);
  });

  contract('records come back in order, with growing positions and a time', async (open) => {
    const [a, b] = [await open('a'), await open('b')];
    const positions: Position[] = [];
    for (let seq = 1; seq <= 10; seq++)
      positions.push(
        await (seq % 2 ? a : b).append(bytesOf(`r${seq}`), { idempotencyKey: `${seq % 2 ? 'a' : 'b'}:${seq}` }),
      );
    const records = await readCount(b, 10);
    assert.deepEqual(
      records.map(({ record }) => textOf(record)),
      positions.map((_, at) => `r${at + 1}`),
    );
    assert.deepEqual(
      records.map(({ position }) => position),
      positions,
    );
    assert.deepEqual(
      [...positions].sort((x, y) => x - y),
      positions,
    );
    // S3 knows seconds only, and clocks differ.
    for (const { serverTime } of records) assert.ok(Math.abs(serverTime - Date.now()) < 600_000, String(serverTime));
  });

  contract('reads continue where the last one ended, and as often as one likes', async (open) => {
    const log = await open('a');
    for (let seq = 1; seq <= 25; seq++) await log.append(bytesOf(String(seq)), { idempotencyKey: `a:${seq}` });
    await readCount(log, 25);
    const [first, second] = [await log.read(0, 10), await log.read(0, 10)];
    assert.deepEqual(first, second);
    assert.equal(first.length, 10);
    const rest = await readAll(log, first[9]?.position, 4);
    assert.deepEqual(
      rest.map(({ record }) => textOf(record)),
      Array.from({ length: 15 }, (_, at) => String(at + 11)),
    );
    assert.deepEqual(await log.read(rest.at(-1)?.position as Position, 10), []);
    await log.append(bytesOf('26'), { idempotencyKey: 'a:26' });
    assert.deepEqual(
      (await readCount(log, 1, rest.at(-1)?.position)).map(({ record }) => textOf(record)),
      ['26'],
    );
  });

  contract('a repeated append has no second effect', async (open) => {
    const log = await open('a');
    const first = await log.append(bytesOf('one'), { idempotencyKey: 'a:1' });
    assert.equal(await log.append(bytesOf('one'), { idempotencyKey: 'a:1' }), first);
    const second = await log.append(bytesOf('two'), { idempotencyKey: 'a:2' });
    assert.equal(await log.append(bytesOf('two'), { idempotencyKey: 'a:2' }), second);
    // A process that has just started knows nothing of it.
    const again = await open('a');
    assert.equal(await again.append(bytesOf('two'), { idempotencyKey: 'a:2' }), second);
    const third = await again.append(bytesOf('three'), { idempotencyKey: 'a:3' });
    assert.deepEqual(
      (await readCount(log, 3)).map(({ position }) => position),
      [first, second, third],
    );
  });

  contract('another record with the same key is a conflict', async (open) => {
    await (await open('a')).append(bytesOf('one'), { idempotencyKey: 'a:1' });
    await assert.rejects(
      (await open('a')).append(bytesOf('other'), { idempotencyKey: 'a:1' }),
      hasCode('KV_LOG_CONFLICT'),
    );
  });

  contract('an append with a condition succeeds after the newest record only', async (open) => {
    const [a, b] = [await open('a'), await open('b')];
    const first = await a.append(bytesOf('one'), { idempotencyKey: 'a:1', expect: 0 });
    await assert.rejects(b.append(bytesOf('late'), { idempotencyKey: 'b:1', expect: 0 }), hasCode('KV_LOG_CONFLICT'));
    const second = await b.append(bytesOf('two'), { idempotencyKey: 'b:1', expect: first });
    // Its reply may have been lost.
    assert.equal(await b.append(bytesOf('two'), { idempotencyKey: 'b:1', expect: first }), second);
    const third = await a.append(bytesOf('three'), { idempotencyKey: 'a:2' });
    await assert.rejects(
      b.append(bytesOf('late'), { idempotencyKey: 'b:2', expect: second }),
      hasCode('KV_LOG_CONFLICT'),
    );
    await b.append(bytesOf('four'), { idempotencyKey: 'b:2', expect: third });
    assert.deepEqual(
      (await readCount(a, 4)).map(({ record }) => textOf(record)),
      ['one', 'two', 'three', 'four'],
    );
  });

  contract('of racing appends with the same condition exactly one succeeds', async (open) => {
    const logs = await Promise.all(Array.from({ length: 6 }, (_, at) => open(`d${at}`)));
    let newest = 0;
    for (let round = 0; round < 5; round++) {
      const ends = await Promise.allSettled(
        logs.map((log, at) =>
          log.append(bytesOf(`${round} ${at}`), { idempotencyKey: `d${at}:${round}`, expect: newest }),
        ),
      );
      const won = ends.filter((end) => end.status === 'fulfilled');
      assert.equal(won.length, 1);
      for (const end of ends)
        if (end.status === 'rejected') assert.ok(hasCode('KV_LOG_CONFLICT')(end.reason), String(end.reason));
      newest = won[0]?.value as Position;
      assert.equal((await readCount(logs[0] as RemoteLog, round + 1)).length, round + 1);
    }
  });

  contract('appends with a condition hold among others without one', async (open) => {
    const [strict, ...others] = (await Promise.all(['s', 'a', 'b', 'c'].map(open))) as [RemoteLog, ...RemoteLog[]];
    const successes = new Map<Position, Position>();
    let isOver = false;
    const writers = others.map(async (log, at) => {
      for (let seq = 1; !isOver; seq++) {
        await log.append(bytesOf(`other ${at} ${seq}`), { idempotencyKey: `o${at}:${seq}` });
        await new Promise((resolve) => setTimeout(resolve, 60 * Math.random()));
      }
    });
    try {
      let after = 0;
      for (let seq = 1; successes.size < 20; seq++) {
        for (let records = await strict.read(after, 500); records.length > 0; records = await strict.read(after, 500))
          after = records.at(-1)?.position as Position;
        try {
          successes.set(
            await strict.append(bytesOf(`strict ${seq}`), { idempotencyKey: `s:${seq}`, expect: after }),
            after,
          );
        } catch (error) {
          if (!hasCode('KV_LOG_CONFLICT')(error)) throw error;
        }
      }
    } finally {
      isOver = true;
      await Promise.all(writers);
    }
    const records = await readAll(strict);
    const strictOnes = records.filter(({ record }) => textOf(record).startsWith('strict'));
    assert.deepEqual(
      strictOnes.map(({ position }) => position),
      [...successes.keys()],
    );
    for (const { position } of strictOnes) {
      const at = records.findIndex((one) => one.position === position);
      assert.equal(records[at - 1]?.position ?? 0, successes.get(position));
    }
  });

  contract('a record is found at its position', async (open) => {
    const log = await open('a');
    const first = await log.append(bytesOf('one'), { idempotencyKey: 'a:1' });
    const second = await log.append(bytesOf('two'), { idempotencyKey: 'a:2' });
    assert.deepEqual(textOf((await log.at(first))?.record as Uint8Array), 'one');
    const found = await log.at(second);
    assert.deepEqual(found, (await readCount(log, 1, first))[0]);
    assert.equal(await log.at(second + 1000), undefined);
  });

  contract('purged records are gone, and reading over the gap is refused', async (open) => {
    const [log, other] = [await open('a'), await open('b')];
    const positions: Position[] = [];
    for (let seq = 1; seq <= 6; seq++)
      positions.push(await log.append(bytesOf(String(seq)), { idempotencyKey: `a:${seq}` }));
    assert.equal((await readCount(other, 6)).length, 6);
    // It has a consumer that goes on where it was.
    assert.equal((await other.read(0, 2)).length, 2);
    const upTo = positions[3] as Position;
    await log.purge(upTo);
    const isPurged = (): Promise<boolean> => log.at(upTo).then(() => false, hasCode('KV_LOG_TRUNCATED'));
    while (!(await isPurged())) await new Promise((resolve) => setTimeout(resolve, 25));
    for (const reader of [log, other, await open('c')]) {
      await assert.rejects(reader.read(0, 10), hasCode('KV_LOG_TRUNCATED'));
      await assert.rejects(reader.read(positions[1] as Position, 1), hasCode('KV_LOG_TRUNCATED'));
      await assert.rejects(reader.read(positions[2] as Position, 10), hasCode('KV_LOG_TRUNCATED'));
      assert.deepEqual(
        (await reader.read(upTo, 10)).map(({ record }) => textOf(record)),
        ['5', '6'],
      );
      assert.deepEqual(
        (await reader.read(upTo, 1)).map(({ record }) => textOf(record)),
        ['5'],
      );
      assert.deepEqual(await reader.read(positions[5] as Position, 10), []);
    }
    await assert.rejects(log.at(positions[0] as Position), hasCode('KV_LOG_TRUNCATED'));
    assert.equal(textOf((await log.at(positions[4] as Position))?.record as Uint8Array), '5');
    assert.equal(await log.at((positions[5] as Position) + 1000), undefined);
  });

  contract('a log that is purged wholly goes on', async (open) => {
    const [a, b] = [await open('a'), await open('b')];
    await a.append(bytesOf('1'), { idempotencyKey: 'a:1' });
    const last = await b.append(bytesOf('2'), { idempotencyKey: 'b:1' });
    await a.purge(last);
    const third = await b.append(bytesOf('3'), { idempotencyKey: 'b:2', expect: last });
    assert.ok(third > last);
    const fourth = await a.append(bytesOf('4'), { idempotencyKey: 'a:2' });
    assert.ok(fourth > third);
    const fresh = await open('c');
    await assert.rejects(readCount(fresh, 1), hasCode('KV_LOG_TRUNCATED'));
    assert.deepEqual(
      (await readCount(fresh, 2, last)).map(({ record }) => textOf(record)),
      ['3', '4'],
    );
  });

  contract('manifests replace each other by revision', async (open) => {
    const [a, b] = [await open('a'), await open('b')];
    const first = await a.replaceManifest(0, bytesOf('one'));
    assert.deepEqual(await a.manifest(), { revision: first, manifest: bytesOf('one') });
    await assert.rejects(b.replaceManifest(0, bytesOf('late')), hasCode('KV_LOG_CONFLICT'));
    const second = await b.replaceManifest(first, bytesOf('two'));
    // Its reply may have been lost.
    assert.equal(await b.replaceManifest(first, bytesOf('two')), second);
    await assert.rejects(a.replaceManifest(first, bytesOf('late')), hasCode('KV_LOG_CONFLICT'));
    const ends = await Promise.allSettled([a, b].map((log, at) => log.replaceManifest(second, bytesOf(`three ${at}`))));
    assert.deepEqual(ends.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
  });

  contract('a listener hears of new records until it ends', async (open) => {
    const [writer, reader] = [await open('a'), await open('b')];
    let calls = 0;
    const end = reader.wake(() => calls++);
    for (let seq = 1; calls === 0; seq++) {
      await writer.append(bytesOf(String(seq)), { idempotencyKey: `a:${seq}` });
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    end();
    await new Promise((resolve) => setTimeout(resolve, 50));
    const heard = calls;
    await writer.append(bytesOf('last'), { idempotencyKey: 'a:last' });
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(calls, heard);
  });

  contract('records are bytes of any kind, up to almost 1 MiB', async (open) => {
    const log = await open('a');
    const large = Uint8Array.from({ length: 1_000_000 }, (_, at) => (at * 31) % 251);
    const empty = new Uint8Array();
    await log.append(large, { idempotencyKey: 'a:1' });
    await log.append(empty, { idempotencyKey: 'a:2' });
    const [first, second] = await readCount(log, 2);
    assert.deepEqual(Buffer.from(first?.record as Uint8Array).equals(Buffer.from(large)), true);
    assert.deepEqual(second?.record, empty);
  });

  contract('an aborted signal ends an operation', async (open) => {
    const log = await open('a');
    const reason = new Error('enough');
    await assert.rejects(log.read(0, 1, AbortSignal.abort(reason)), reason);
    await assert.rejects(
      log.append(bytesOf('x'), { idempotencyKey: 'a:1', signal: AbortSignal.abort(reason) }),
      reason,
    );
    await log.append(bytesOf('y'), { idempotencyKey: 'a:2' });
    assert.deepEqual(
      (await readCount(log, 1)).map(({ record }) => textOf(record)),
      ['y'],
    );
  });

  contract('a closed log refuses', async (open) => {
    const log = await open('a');
    await log.append(bytesOf('x'), { idempotencyKey: 'a:1' });
    await log.close();
    await assert.rejects(log.append(bytesOf('y'), { idempotencyKey: 'a:2' }), hasCode('KV_CLOSED'));
    await assert.rejects(log.read(0, 1), hasCode('KV_CLOSED'));
  });
}
