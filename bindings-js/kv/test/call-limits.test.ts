// Limits apply to calls: that calls share a message, or wait for one another, refuses none of them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from 'mangrove-kv';
import type { KvError } from 'mangrove-kv';
import { turn } from '../src/base/async.ts';
import { Connection } from '../src/wire/connection.ts';
import type { Transport } from '../src/wire/transport.ts';
import { withPath } from './support/kit.ts';

const MIB = 1 << 20;

for (const thread of ['same', 'worker'] as const) {
  test(`long values are written in one tick, engine in thread "${thread}"`, () =>
    withPath(async (path) => {
      const db = await open<number, Uint8Array>(path, { thread });
      await db.set(0, Uint8Array.of(1));
      const value = new Uint8Array(30 * MIB);
      // The first one lets the others wait for its flush.
      const outcomes = await Promise.allSettled([
        ...Array.from({ length: 20 }, (_, key) => db.set(key, value)),
        db.set(20, Uint8Array.of(7)),
        db.delete(19),
      ]);
      assert.deepEqual(
        outcomes.map(({ status }) => status).filter((status) => status === 'rejected'),
        [],
      );
      assert.equal(await db.size, 20);
      assert.equal((await db.get(18))?.length, value.length);
      assert.equal((await db.get(20))?.[0], 7);
      await db.close();
    }));

  test(`many values are written in one tick, engine in thread "${thread}"`, () =>
    withPath(async (path) => {
      const db = await open<number, Uint8Array>(path, { thread });
      await db.set(0, Uint8Array.of(1));
      const value = new Uint8Array(10_000);
      const outcomes = await Promise.allSettled(Array.from({ length: 60_000 }, (_, key) => db.set(key % 3000, value)));
      assert.deepEqual(outcomes.filter(({ status }) => status === 'rejected').length, 0);
      assert.equal(await db.size, 3000);
      await db.close();
    }));
}

/** A transport that records messages, and is busy until the test says otherwise. */
class BusyTransport implements Transport {
  readonly takesBuffers: boolean;
  events: Transport['events'];
  isBusy = true;
  readonly sent: Uint8Array[] = [];

  constructor(takesBuffers: boolean) {
    this.takesBuffers = takesBuffers;
  }

  send(message: Uint8Array<ArrayBuffer>): void {
    this.sent.push(this.takesBuffers ? structuredClone(message, { transfer: [message.buffer] }) : message.slice());
  }

  dispose(): void {}
}

for (const takesBuffers of [false, true]) {
  test(`messages that wait are bounded, and a long call has one of its own${takesBuffers ? ', when buffers are transferred' : ''}`, async () => {
    const transport = new BusyTransport(takesBuffers);
    const connection = new Connection(transport);
    const lengths = [100, 20 * MIB, 50, 6 * MIB, 6 * MIB, 6 * MIB, 6 * MIB, 70, 40 * MIB];
    const replies = lengths.map((length, index) =>
      connection.request(
        (writer) => writer.raw(new Uint8Array(length).fill(index + 1)),
        (reader) => reader.u8(),
      ),
    );
    // The engine in its own thread takes everything at once; `isBusy` holds messages back here too.
    await turn();
    assert.equal(transport.sent.length, 0);
    transport.isBusy = false;
    transport.events!.idle();
    await turn();
    const groups = transport.sent.map((message) => {
      const found: number[] = [];
      for (let at = 0; at < message.length; at += lengths[message[at]! - 1]!) found.push(message[at]! - 1);
      assert.equal(
        message.length,
        found.reduce((sum, index) => sum + lengths[index]!, 0),
      );
      return found;
    });
    assert.deepEqual(groups, [[0], [1], [2, 3, 4, 5], [6, 7], [8]]);
    for (const group of groups) transport.events!.reply(Uint8Array.from(group.flatMap((index) => [0, index])), 1);
    assert.deepEqual(
      await Promise.all(replies),
      lengths.map((_, index) => index),
    );
  });
}

test('a call that is too long is refused alone', async () => {
  const transport = new BusyTransport(false);
  const connection = new Connection(transport);
  const ask = (length: number): Promise<string> =>
    connection.request(
      (writer) => {
        for (let left = length; left > 0; left -= 16) writer.raw(new Uint8Array(Math.min(left, 16) * MIB));
      },
      () => 'done',
    );
  const before = ask(1);
  const tooLong = ask(513);
  const exact = ask(512);
  const after = ask(1);
  await assert.rejects(tooLong, (error: KvError) => error.code === 'KV_VALUE_TOO_LARGE' && !error.retryable);
  transport.isBusy = false;
  transport.events!.idle();
  await turn();
  assert.deepEqual(
    transport.sent.map(({ length }) => length / MIB),
    [1, 512, 1],
  );
  for (let left = 3; left > 0; left--) transport.events!.reply(Uint8Array.of(0), 1);
  assert.deepEqual(await Promise.all([before, exact, after]), ['done', 'done', 'done']);
});

test('an error in place of all that is left of a message is the answer to each of its calls', async () => {
  const transport = new BusyTransport(false);
  transport.isBusy = false;
  const connection = new Connection(transport);
  const ask = (): Promise<number> =>
    connection.request(
      (writer) => writer.u8(1),
      (reader) => reader.u8(),
    );
  const asked = [ask(), ask(), ask()];
  await turn();
  // A reply, and an error with a code of one letter, a message of one, and no flags.
  transport.events!.reply(Uint8Array.of(0, 9, 1, 1, 65, 1, 66, 0), 1);
  assert.equal(await asked[0], 9);
  for (const lost of asked.slice(1)) await assert.rejects(lost, { code: 'A', message: 'B' });
  assert.equal(connection.status, 'open');
});
