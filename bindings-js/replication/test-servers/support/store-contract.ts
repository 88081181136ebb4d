// What every SnapshotStore has to do.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SnapshotStore } from '../../src/remote-log.ts';
import { bytesOf, hasCode, textOf } from './log-contract.ts';

/** A stream of chunks of at most `size` bytes. */
export function streamOf(bytes: Uint8Array, size = 64 * 1024): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) controller.close();
      else controller.enqueue(bytes.slice(at, (at += size)));
    },
  });
}

export async function bytesIn(stream: ReadableStream<Uint8Array> | undefined): Promise<Uint8Array | undefined> {
  return stream && new Uint8Array(await new Response(stream).arrayBuffer());
}

export function testStore(name: string, factory: () => Promise<SnapshotStore>): void {
  let folders = 0;
  const contract = (what: string, run: (store: SnapshotStore, folder: string) => Promise<void>): void => {
    test(`${name}: ${what}`, async () => run(await factory(), `contract${++folders}/`));
  };

  contract('an object comes back as it was put', async (store, folder) => {
    for (const length of [0, 1, 65_536, 8 * 1024 * 1024, 20_000_000]) {
      const bytes = Uint8Array.from({ length }, (_, at) => (at * 7) % 251);
      await store.put(`${folder}${length}`, streamOf(bytes, 1_000_003));
      const found = await bytesIn(await store.get(`${folder}${length}`));
      assert.ok(found !== undefined && Buffer.from(found).equals(Buffer.from(bytes)), `${length} bytes`);
    }
  });

  contract('an object that is not there is undefined', async (store, folder) => {
    assert.equal(await store.get(`${folder}a`), undefined);
    await store.delete(`${folder}a`);
  });

  contract('an object is created once', async (store, folder) => {
    await store.put(`${folder}a`, streamOf(bytesOf('one')));
    await assert.rejects(store.put(`${folder}a`, streamOf(bytesOf('two'))), hasCode('KV_LOG_CONFLICT'));
    assert.equal(textOf((await bytesIn(await store.get(`${folder}a`))) as Uint8Array), 'one');
  });

  contract('of racing creators one wins', async (store, folder) => {
    for (let round = 0; round < 5; round++) {
      const key = `${folder}${round}`;
      const bodies = Array.from({ length: 5 }, (_, at) => bytesOf(`racer ${at}`));
      const ends = await Promise.allSettled(bodies.map((body) => store.put(key, streamOf(body))));
      const winner = ends.findIndex(({ status }) => status === 'fulfilled');
      assert.equal(ends.filter(({ status }) => status === 'fulfilled').length, 1);
      assert.equal(textOf((await bytesIn(await store.get(key))) as Uint8Array), `racer ${winner}`);
    }
  });

  contract('a stream that fails creates nothing', async (store, folder) => {
    const failure = new Error('the disk is gone');
    let pulls = 0;
    const stream = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (++pulls > 20) controller.error(failure);
        else controller.enqueue(new Uint8Array(1_000_000));
      },
    });
    await assert.rejects(store.put(`${folder}a`, stream), failure);
    assert.equal(await store.get(`${folder}a`), undefined);
    assert.deepEqual(await store.list(folder), []);
    await store.put(`${folder}a`, streamOf(bytesOf('one')));
    assert.equal(textOf((await bytesIn(await store.get(`${folder}a`))) as Uint8Array), 'one');
  });

  contract('keys are listed in order and deleted', async (store, folder) => {
    for (const key of ['b/2', 'a', 'b/1', 'c']) await store.put(folder + key, streamOf(bytesOf(key)));
    assert.deepEqual(
      await store.list(folder),
      ['a', 'b/1', 'b/2', 'c'].map((key) => folder + key),
    );
    assert.deepEqual(
      await store.list(`${folder}b/`),
      ['b/1', 'b/2'].map((key) => folder + key),
    );
    await store.delete(`${folder}b/1`);
    assert.deepEqual(await store.list(`${folder}b/`), [`${folder}b/2`]);
    assert.equal(await store.get(`${folder}b/1`), undefined);
  });

  contract('a put that is aborted creates nothing', async (store, folder) => {
    const reason = new Error('enough');
    await assert.rejects(store.put(`${folder}a`, streamOf(bytesOf('one')), AbortSignal.abort(reason)), reason);
    assert.equal(await store.get(`${folder}a`), undefined);
  });
}
