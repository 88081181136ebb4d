// Pages that end at any moment of a move, while they write and between writes of the old program: no entry is lost.
import 'fake-indexeddb/auto';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import * as original from 'idb-keyval';
import * as twin from '@mangrove-kv/idb-keyval';
import { chance } from '../../../kv/test/support/kit.ts';
import { databaseNames, hooked } from '../../../migrate/test/support/hooks.ts';
import { show } from '../../../migrate/test/support/show.ts';

const directory = mkdtempSync(join(tmpdir(), 'mangrove-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const RUNS = Number(process.env['TWIN_RUNS'] ?? 20);
const SEED = Number(process.env['TWIN_SEED'] ?? Date.now() % 1_000_000);

async function inOldProgram<T>(name: string, work: (use: original.UseStore) => Promise<T>): Promise<T> {
  const use = original.createStore(name, 'kv');
  try {
    return await work(use);
  } finally {
    await use('readonly', (store) => store.transaction.db.close());
  }
}

async function sourceOf(name: string): Promise<Map<string, string>> {
  if (!(await databaseNames()).includes(name)) return new Map();
  const entries = await inOldProgram(name, (use) => original.entries<string, unknown>(use));
  return new Map(await Promise.all(entries.map(async ([key, value]) => [key, await show(value)] as const)));
}

const pause = (turns: number): Promise<void> =>
  new Promise((resolve) => {
    const wait = (left: number): unknown => (left > 0 ? setImmediate(wait, left - 1) : resolve());
    wait(turns);
  });

async function lives(seed: number): Promise<void> {
  const next = chance(seed);
  const random = (limit: number): number => Math.floor(next() * limit);
  const name = `deaths ${seed}`;
  const count = 1 + random(random(2) === 0 ? 20 : 400);
  let values = 0;
  const fresh = (): unknown => {
    const text = `value ${++values}`.padEnd(12);
    return random(20) === 0 ? { blob: new Blob([text]) } : { text, set: new Set([text]) };
  };
  /** What each key may have in the twin. */
  const possible = new Map<string, string[]>();
  /** What the old program has written since the move began: while it went on, unless the twin has written there since. */
  const during = new Map<string, string>();
  const afterwards = new Map<string, string>();
  let isMoved = false;
  const keyAt = (): string => `key ${random(count + 5)}`;
  const add = (key: string, value: string): void => {
    possible.set(key, [...(possible.get(key) ?? ['undefined']), value]);
  };

  await inOldProgram(name, async (use) => {
    const entries = Array.from({ length: count }, (_, index) => [`key ${index}`, fresh()] as [string, unknown]);
    for (const [key, value] of entries) possible.set(key, [await show(value)]);
    await original.setMany(entries, use);
  });

  /** One visit of the page. */
  const live = async (diesAt: number, isByCall: boolean): Promise<void> => {
    const store = twin.createStore(name, 'kv', { directory });
    let isDead = false;
    const die = (): void => {
      isDead = true;
      void twin.close(store).catch(() => undefined);
    };
    await hooked(
      (call, method) => {
        if (isByCall && call === diesAt && !isDead) die();
        // The connections of a dead page are closed.
        if (isDead && method !== 'close') throw new Error('dead');
      },
      async () => {
        const ops = new Map<string, unknown>();
        for (let left = random(4); left > 0; left--) ops.set(keyAt(), random(3) === 0 ? undefined : fresh());
        const calls = [...ops].map(async ([key, value]) => {
          const text = await show(value);
          try {
            await (value === undefined ? twin.del(key, store) : twin.set(key, value, store));
            possible.set(key, [text]);
            during.delete(key);
            isMoved = true;
          } catch (error) {
            assert.ok(isDead, String(error));
            add(key, text);
            during.delete(key);
          }
        });
        if (calls.length === 0 && random(2) === 0)
          calls.push(
            twin.keys(store).then(
              () => void (isMoved = true),
              () => assert.ok(isDead),
            ),
          );
        if (!isByCall) await pause(diesAt).then(die);
        await Promise.all(calls);
        if (isByCall) await pause(random(60));
        if (!isDead) die();
        await twin.close(store).catch(() => undefined);
        await pause(5);
      },
    );
  };

  for (let left = 1 + random(6); left > 0; left--) {
    const isByCall = random(3) > 0;
    await live(random(isByCall ? 50 : 100), isByCall);
    if (random(2) === 0) continue;
    await inOldProgram(name, async (use) => {
      const [key, value] = [keyAt(), fresh()];
      const text = await show(value);
      if (!isMoved && random(3) === 0) {
        await original.del(key, use);
        add(key, 'undefined');
        during.delete(key);
      } else {
        await original.set(key, value, use);
        if (!isMoved) add(key, text);
        (isMoved ? afterwards : during).set(key, text);
      }
    });
  }

  const store = twin.createStore(name, 'kv', { directory });
  const found = new Map<string, string>();
  for (const [key, value] of await twin.entries<string>(store)) found.set(key, await show(value));
  await pause(150);
  const source = await sourceOf(name);
  await twin.close(store);
  for (const key of new Set([...possible.keys(), ...found.keys()])) {
    const value = found.get(key) ?? 'undefined';
    assert.ok((possible.get(key) ?? ['undefined']).includes(value), `seed ${seed}: ${key} is ${value}`);
  }
  for (const [key, value] of during)
    if (!afterwards.has(key))
      assert.ok(found.get(key) === value || source.get(key) === value, `seed ${seed}: ${key} lost ${value}`);
  for (const [key, value] of afterwards) assert.equal(source.get(key), value, `seed ${seed}: ${key}`);
}

test('pages that end at any moment, in turn with the old program, lose nothing', { timeout: 120_000 }, async () => {
  for (let seed = SEED; seed < SEED + RUNS; seed++) await lives(seed);
});
