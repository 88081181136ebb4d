// The test suite that automerge-repo publishes for storage adapters, run by vitest.
import type { Chunk, StorageKey } from '@automerge/automerge-repo';
import { runStorageAdapterTests } from '@automerge/automerge-repo/helpers/tests/storage-adapter-tests.js';
import { keyCodecs, open, valueCodecs } from 'mangrove-kv';
import { MangroveStorageAdapter } from '@mangrove-kv/automerge';

/**
 * The suite expects chunks in the order in which they were saved. The interface promises no order;
 * the adapter returns them in the order of the keys.
 */
class InOrderOfSaving extends MangroveStorageAdapter {
  readonly #saved: string[] = [];

  override save(key: StorageKey, data: Uint8Array): Promise<void> {
    this.#saved.push(key.join());
    return super.save(key, data);
  }

  override async loadRange(keyPrefix: StorageKey): Promise<Chunk[]> {
    const chunks = await super.loadRange(keyPrefix);
    const place = ({ key }: Chunk): number => this.#saved.indexOf(key.join());
    return chunks.sort((a, b) => place(a) - place(b));
  }
}

runStorageAdapterTests(async () => {
  const db = await open('test', { storage: 'memory' });
  const chunks = db.collection('automerge', { key: keyCodecs.tuple<readonly string[]>(), value: valueCodecs.bytes });
  return { adapter: new InOrderOfSaving(chunks), teardown: () => void db.close() };
});
