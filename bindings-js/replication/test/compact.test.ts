// Compactors that get into each other's way: whatever the order of their operations, a new device starts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryLog, MemoryServer, MemorySnapshotStore } from '../src/memory-log.ts';
import { Device } from './device.ts';

/** What a compaction does to the log and the store, one step each. */
const OPERATIONS = new Set<PropertyKey>(['manifest', 'replaceManifest', 'purge', 'put', 'list', 'delete']);
/** Which of them find another state in the other order; `write` is the note before a compaction. */
const CONFLICTING = new Set([
  'write write',
  'manifest replaceManifest',
  'replaceManifest replaceManifest',
  'list put',
  'delete list',
]);
const NAMES = 'abc';

/** Stops a compactor before each of its operations until it is told to go on. */
class Gate {
  isActive = false;
  /** The operation before which it waits. */
  next = '';
  #goOn: (() => void) | undefined;
  #arrived: () => void = () => undefined;

  /** The same object, whose operations wait. */
  of<T extends object>(target: T): T {
    return new Proxy(target, {
      get: (_, name) => {
        const member = Reflect.get(target, name, target) as unknown;
        if (typeof member !== 'function') return member;
        return OPERATIONS.has(name)
          ? async (...given: unknown[]) => {
              if (this.isActive) await this.pass(String(name));
              return member.apply(target, given) as unknown;
            }
          : (member.bind(target) as unknown);
      },
    });
  }

  pass(operation: string): Promise<void> {
    this.next = operation;
    return new Promise((resolve) => {
      this.#goOn = resolve;
      this.#arrived();
    });
  }

  /** Lets one operation happen; resolves when the compactor waits before the next one, or has ended. */
  async step(end: Promise<void>): Promise<void> {
    const arrived = new Promise<void>((resolve) => {
      this.#arrived = resolve;
    });
    this.#goOn?.();
    await Promise.race([arrived, end]);
  }
}

class Compactors {
  readonly server = new MemoryServer();
  readonly snapshots = new MemorySnapshotStore();
  readonly #all: { readonly device: Device; readonly gate: Gate }[] = [];
  #notes = 0;
  #runs = 0;

  static async start(count: number): Promise<Compactors> {
    const compactors = new Compactors();
    const { server, snapshots } = compactors;
    for (let index = 0; index < count; index++) {
      const gate = new Gate();
      const device = await Device.start(server, {
        log: gate.of(new MemoryLog(server)),
        snapshots: gate.of(snapshots),
        isInMemory: true,
      });
      await device.exchange();
      compactors.#all.push({ device, gate });
    }
    return compactors;
  }

  /**
   * Lets each of them write a note and compact, one operation at a time: `choose` gets those that
   * have not ended and their next operations, and says which of them goes on. Returns the order. Then
   * a new device has to start.
   */
  async run(choose: (left: string, operations: readonly string[]) => string | undefined): Promise<string> {
    let [left, order] = [NAMES.slice(0, this.#all.length), ''];
    const ends = this.#all.map(async ({ device, gate }, index) => {
      gate.isActive = true;
      await gate.pass('write');
      await device.db.collection('notes').set(`${index}`, ++this.#notes);
      await device.replica
        .compact()
        .catch((error: { readonly code?: unknown }) => assert.equal(error.code, 'KV_LOG_CONFLICT'));
      left = left.replace(NAMES.charAt(index), '');
    });
    while (left !== '') {
      const name =
        choose(
          left,
          this.#all.map(({ gate }) => gate.next),
        ) ?? left.charAt(0);
      order += name;
      const at = NAMES.indexOf(name);
      await this.#all[at]?.gate.step(ends[at] as Promise<void>);
    }
    await Promise.all(ends);
    for (const { gate } of this.#all) gate.isActive = false;
    await this.#check(order);
    return order;
  }

  async #check(order: string): Promise<void> {
    const [{ device } = assert.fail()] = this.#all;
    await device.exchange();
    const fresh = await Device.start(this.server, { snapshots: this.snapshots, isInMemory: true });
    const {
      content: { key },
    } = JSON.parse(
      `{"content":${new TextDecoder().decode((await new MemoryLog(this.server).manifest())?.manifest)}}`,
    ) as { readonly content: { readonly key: string } };
    assert.ok(
      (await this.snapshots.list('snapshot/')).includes(key),
      `in the order ${order} the snapshot that the manifest names was deleted`,
    );
    await fresh.exchange();
    assert.equal(await fresh.digest(), await device.digest(), order);
    assert.deepEqual(fresh.alarms, [], order);
    await fresh.stop();
    this.#runs++;
  }

  /** What they left behind is gone after two more compactions. */
  async stop(): Promise<number> {
    const [{ device } = assert.fail()] = this.#all;
    for (let round = 0; round < 2; round++) {
      await device.db.collection('notes').set('round', ++this.#notes);
      await device.replica.compact();
    }
    assert.equal((await this.snapshots.list('snapshot/')).length, 2);
    await Promise.all(this.#all.map((each) => each.device.stop()));
    return this.#runs;
  }
}

test('two compactors, in every order of their operations', async (t) => {
  const compactors = await Compactors.start(2);
  // Depth first: of the last choice that was "a" beside a "b" it tries the other one.
  for (let path: string | undefined = ''; path !== undefined; ) {
    const isChoice: boolean[] = [];
    const prefix: string = path;
    let last: string | undefined;
    const order: string = await compactors.run((left, [a = '', b = '']) => {
      // "b" before "a" is the same as "a" before "b" if the two operations do not conflict.
      const isSame = last !== undefined && !CONFLICTING.has([last, a].sort().join(' '));
      const name = left.length === 1 ? left : isSame ? 'b' : prefix.charAt(isChoice.length) || 'a';
      isChoice.push(left.length > 1 && !isSame);
      last = name === 'b' ? b : undefined;
      return name;
    });
    const at = isChoice.reduce((found, isOne, index) => (isOne && order.charAt(index) === 'a' ? index : found), -1);
    path = at < 0 ? undefined : `${order.slice(0, at)}b`;
  }
  t.diagnostic(`${await compactors.stop()} orders`);
});

test('three compactors, of which one sleeps anywhere while another one sleeps anywhere', async (t) => {
  const compactors = await Compactors.start(3);
  const isOver = [false, false];
  for (const woken of ['ab', 'ba']) {
    for (let first = 1; !isOver[0]; first++) {
      isOver[1] = false;
      for (let second = 1; !isOver[1]; second++) {
        const plan = `${'a'.repeat(first)}${'b'.repeat(second)}${'c'.repeat(99)}${woken.charAt(0).repeat(99)}`;
        let at = 0;
        const order = await compactors.run((left) => {
          while (at < plan.length && !left.includes(plan.charAt(at))) at++;
          return plan.charAt(at++) || undefined;
        });
        isOver[0] = !order.includes('a', order.indexOf('c'));
        isOver[1] = !order.includes('b', order.indexOf('c'));
      }
    }
    isOver[0] = false;
  }
  t.diagnostic(`${await compactors.stop()} orders`);
});

test('three compactors, in random orders', async (t) => {
  const compactors = await Compactors.start(3);
  let seed = 1;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 16) % below;
  };
  for (let run = 0; run < 60; run++) await compactors.run((left) => left.charAt(random(left.length)));
  t.diagnostic(`${await compactors.stop()} orders`);
});
