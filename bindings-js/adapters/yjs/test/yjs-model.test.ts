// Random edits of several documents by several providers each, with compactions, lost connections,
// destroys and new openings at random points. The documents always have what was acknowledged, in
// images of the storage too, as the death of the process would leave it, and nothing else.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { MangrovePersistence, fetchUpdates, storeState } from '@mangrove-kv/yjs';
import * as Y from 'yjs';
import { FaultyStorage } from '../../../kv/test/support/faulty-storage.ts';

const DOCUMENTS = ['a', 'ab'];
const MAX_PROVIDERS = 4;

const which = fc.nat(1000);
const command = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('open' as const),
      name: fc.constantFrom(...DOCUMENTS),
      trimSize: fc.constantFrom(2, 3, 10),
      isEarly: fc.boolean(),
    }),
  },
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant('edit' as const),
      which,
      kind: fc.constantFrom('insert', 'delete', 'set', 'unset'),
      at: which,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('fetch' as const, 'compact' as const, 'flush' as const, 'exchange' as const),
      which,
      isAwaited: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constantFrom('destroy' as const, 'destroy document' as const),
      which,
      isAwaited: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('tick' as const, 'turn' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('image' as const, 'reopen' as const) }) },
);
type Command = typeof command extends fc.Arbitrary<infer C> ? C : never;

/** Whether a document has everything that another has. */
function has(doc: Y.Doc, other: Y.Doc): boolean {
  const both = new Y.Doc();
  for (const each of [doc, other]) Y.applyUpdate(both, Y.encodeStateAsUpdate(each));
  return Y.equalSnapshots(Y.snapshot(both), Y.snapshot(doc));
}

function edit(doc: Y.Doc, kind: string, at: number): void {
  const text = doc.getText('text');
  if (kind === 'insert') text.insert(at % (text.length + 1), String(at));
  else if (kind === 'delete' && text.length > 0) text.delete(at % text.length, 1);
  else if (kind === 'set') doc.getMap('map').set(`key ${at % 3}`, at);
  else doc.getMap('map').delete(`key ${at % 3}`);
}

class Run {
  storage = new FaultyStorage();
  db: Database | undefined;
  providers: MangrovePersistence[] = [];
  /** What providers were given, and what of it was acknowledged. */
  readonly given = new Map(DOCUMENTS.map((name) => [name, new Y.Doc()]));
  readonly acknowledged = new Map(DOCUMENTS.map((name) => [name, new Y.Doc()]));
  readonly errors: unknown[] = [];
  running: Promise<unknown>[] = [];
  images = 0;

  async start(): Promise<void> {
    this.db = await open('test', { storage: this.storage });
  }

  async run(step: Command): Promise<void> {
    if (step.do === 'open') return this.open(step);
    if (!('which' in step)) return this.pass(step.do);
    const provider = this.providers[step.which % this.providers.length];
    if (provider === undefined) return;
    if (step.do === 'edit') return edit(provider.doc, step.kind, step.at);
    const running = this.call(step.do, provider);
    this.running.push(running);
    if (step.isAwaited) await running;
  }

  async pass(how: 'tick' | 'turn' | 'image' | 'reopen'): Promise<void> {
    if (how === 'turn') await delay(0);
    else if (how === 'image') await this.checkImage();
    else if (how === 'reopen') await this.reopen();
  }

  async call(
    name: 'fetch' | 'compact' | 'flush' | 'exchange' | 'destroy' | 'destroy document',
    provider: MangrovePersistence,
  ): Promise<void> {
    const state = Y.encodeStateAsUpdate(provider.doc);
    const acknowledge = (): void => Y.applyUpdate(this.acknowledged.get(provider.name) as Y.Doc, state);
    const orDestroyed = (error: { code?: unknown }): void => assert.equal(error.code, 'KV_CLOSED');
    if (name === 'fetch') return void (await fetchUpdates(provider).catch(orDestroyed));
    if (name === 'compact') return storeState(provider).catch(orDestroyed);
    if (name === 'flush') return provider.flush().then(acknowledge);
    if (name === 'exchange') {
      // As providers of a network do.
      for (const { doc } of this.providers.filter((other) => other.name === provider.name))
        Y.applyUpdate(doc, state, 'network');
      return undefined;
    }
    this.providers = this.providers.filter((other) => other !== provider);
    if (name === 'destroy document') provider.doc.destroy();
    return provider.destroy().then(acknowledge);
  }

  open({ name, trimSize, isEarly }: { name: string; trimSize: number; isEarly: boolean }): void {
    if (this.providers.length === MAX_PROVIDERS) return;
    const doc = new Y.Doc();
    if (isEarly) edit(doc, 'set', trimSize);
    const given = this.given.get(name) as Y.Doc;
    Y.applyUpdate(given, Y.encodeStateAsUpdate(doc));
    const provider = new MangrovePersistence(name, doc, { database: this.db, trimSize });
    provider._storeTimeout = 0;
    provider.on('error', (error) => this.errors.push(error));
    doc.on('update', (update: Uint8Array) => Y.applyUpdate(given, update));
    this.providers.push(provider);
  }

  async reopen(): Promise<void> {
    await this.destroyAll();
    await this.db?.close();
    await this.start();
    await this.check(this.db as Database, this.given);
  }

  async destroyAll(): Promise<void> {
    for (const provider of this.providers) this.running.push(this.call('destroy', provider));
    await Promise.all(this.running);
    this.running = [];
  }

  /** Opens a copy of the storage as it is now. */
  async checkImage(): Promise<void> {
    this.images++;
    const image = new FaultyStorage();
    for (const [name, bytes] of this.storage.files) image.files.set(name, bytes.slice());
    const acknowledged = new Map([...this.acknowledged].map(([name, doc]) => [name, Y.encodeStateAsUpdate(doc)]));
    const db = await open('test', { storage: image });
    const before = new Map(
      [...acknowledged].map(([name, state]) => {
        const doc = new Y.Doc();
        Y.applyUpdate(doc, state);
        return [name, doc];
      }),
    );
    await this.check(db, before);
    assert.deepEqual((await db.verify()).problems, []);
    await db.close();
  }

  async check(db: Database, least: ReadonlyMap<string, Y.Doc>): Promise<void> {
    for (const name of DOCUMENTS) {
      const provider = new MangrovePersistence(name, new Y.Doc(), { database: db });
      const { doc } = await provider.whenSynced;
      assert.ok(has(doc, least.get(name) as Y.Doc), `something of ${name} is missing`);
      assert.ok(has(this.given.get(name) as Y.Doc, doc), `something of ${name} came from nowhere`);
      await provider.destroy();
    }
  }

  async end(): Promise<void> {
    await this.destroyAll();
    await this.checkImage();
    await this.reopen();
    await this.db?.close();
    assert.deepEqual(this.errors, []);
    assert.deepEqual(
      [...this.acknowledged].map(([, doc]) => doc.toJSON()),
      [...this.given].map(([, doc]) => doc.toJSON()),
    );
  }
}

test('documents always have what was acknowledged', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(command, { maxLength: 60, size: 'max' }), async (steps) => {
      const run = new Run();
      await run.start();
      for (const step of steps) await run.run(step);
      await run.end();
    }),
    { numRuns: 60 },
  );
});
