// Replication works in the thread of the application here, and lets it have its turn.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryServer } from '../src/memory-log.ts';
import { Pace } from '../src/pace.ts';
import { decodeBody } from '../src/record.ts';
import { decodeOutbox } from '../src/state.ts';
import { Device, converge } from './device.ts';

const entries = (count: number): [string, number][] =>
  Array.from({ length: count }, (_, index) => [`key ${index}`, index]);

test('a rest after long work lets others have their turn', async () => {
  const pace = new Pace();
  let turns = 0;
  setImmediate(() => turns++);
  for (const end = performance.now() + 2; performance.now() < end; );
  await pace.rest();
  assert.equal(turns, 1);
});

test('large transactions are sent and applied with rests', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await converge([a, b]);
  let [rests, looks] = [0, 0];
  for (const {
    replica: {
      tables: { pace },
    },
  } of [a, b]) {
    Object.defineProperty(pace, 'isDue', {
      get: () => {
        looks++;
        return Reflect.get(Pace.prototype, 'isDue', pace) as boolean;
      },
    });
    const rest = pace.rest.bind(pace);
    pace.rest = () => {
      rests++;
      return rest();
    };
  }
  await a.db.collection('notes').setMany(entries(5000));
  await a.replica.drain();
  assert.ok(rests >= 50, `${rests} rests while 5,000 entries were taken`);
  // In each loop over them: for the record, for the overlay, and for the rows.
  assert.ok(looks >= 15_000, `${looks} looks at the clock while 5,000 entries were taken`);
  await a.exchange();
  rests = looks = 0;
  await b.replica.pull();
  assert.equal(await b.db.collection('notes').size, 5000);
  assert.ok(rests >= 50, `${rests} rests while 5,000 entries were applied`);
  // Once for an entry and once for each of its rows.
  assert.ok(looks >= 15_000, `${looks} looks at the clock while 5,000 entries were applied`);
  await Promise.all([a.stop(), b.stop()]);
});

test('a burst becomes records of a few hundred operations, none of which splits a commit', async () => {
  const server = new MemoryServer();
  const [a, b] = [await Device.start(server), await Device.start(server)];
  await converge([a, b]);
  const notes = a.db.collection('notes');
  for (const [key, value] of entries(600)) await notes.set(key, value);
  await notes.setMany(entries(600));
  while (await a.replica.drain());
  const sizes: number[] = [];
  for await (const [, bytes] of a.replica.tables.outbox) {
    const { body } = decodeOutbox(bytes);
    sizes.push(decodeBody(body).transactions.reduce((sum, { ops }) => sum + ops.length, 0));
  }
  assert.deepEqual(sizes, [256, 256, 688]);
  await converge([a, b]);
  assert.equal(await b.db.collection('notes').size, 600);
  await Promise.all([a.stop(), b.stop()]);
});
