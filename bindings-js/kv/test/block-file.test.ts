// The changes that a file reports suffice to rebuild it, whenever they are taken.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BLOCK_BYTES, BlockFile } from '../src/storage/block-file.ts';
import type { FileChanges } from '../src/storage/block-file.ts';
import { chance } from './support/kit.ts';

/** Stands in for IndexedDB. */
class Stored {
  readonly #blocks = new Map<number, Uint8Array>();
  #size = 0;

  apply({ droppedFrom = Infinity, blocks, size }: FileChanges): void {
    for (const index of [...this.#blocks.keys()]) if (index >= droppedFrom) this.#blocks.delete(index);
    for (const [index, bytes] of blocks) this.#blocks.set(index, bytes.slice());
    this.#size = size;
  }

  load(): BlockFile {
    const file = new BlockFile(
      () => undefined,
      () => undefined,
    );
    for (const [index, bytes] of this.#blocks) file.load(index, bytes.slice());
    file.loadSize(this.#size);
    return file;
  }
}

function contentOf(file: BlockFile): Uint8Array {
  const content = new Uint8Array(file.size());
  file.read(0, content);
  return content;
}

test('changes rebuild the file', () => {
  for (let seed = 0; seed < 30; seed++) {
    const next = chance(seed);
    const below = (limit: number): number => Math.floor(next() * limit);
    const stored = new Stored();
    let file = new BlockFile(
      () => undefined,
      () => undefined,
    );
    for (let step = 0; step < 60; step++) {
      const kind = next();
      if (kind < 0.55)
        file.write(below(12 * BLOCK_BYTES), new Uint8Array(1 + below(2 * BLOCK_BYTES)).fill(1 + below(255)));
      else if (kind < 0.75) file.truncate(next() < 0.3 ? below(13) * BLOCK_BYTES : below(12 * BLOCK_BYTES));
      else stored.apply(file.takeChanges());
      if (kind < 0.95) continue;
      stored.apply(file.takeChanges());
      const loaded = stored.load();
      assert.deepEqual(contentOf(loaded), contentOf(file), `seed ${seed}, step ${step}`);
      // The next steps use the loaded file, so that what lies past its end matters too.
      file = loaded;
    }
  }
});

test('a file without changes has nothing to store', () => {
  let changes = 0;
  const file = new BlockFile(
    () => {
      changes++;
    },
    () => undefined,
  );
  file.write(0, new Uint8Array(3 * BLOCK_BYTES));
  file.takeChanges();
  file.truncate(3 * BLOCK_BYTES);
  assert.deepEqual(file.takeChanges(), { droppedFrom: undefined, blocks: [], size: 3 * BLOCK_BYTES });
  assert.equal(changes, 1);
});
