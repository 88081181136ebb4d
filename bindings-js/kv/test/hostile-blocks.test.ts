// Blocks with forged content and correct checksums, in the WebAssembly module: expanding and
// checking them there must not trap.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createXXHash64, xxhash64 } from 'hash-wasm';
import { open, recover } from 'mangrove-kv';
import { withPath } from './support/kit.ts';

const UNIT = 4096;
const HEADER = 32;
const ROUNDS = 150;

/**
 * The checksum in a block's header: the low half of XXH64 of the payload, seeded with that of the
 * header before it.
 */
async function blockChecksum(): Promise<(header: Uint8Array, payload: Uint8Array) => Promise<number>> {
  const ofHeader = await createXXHash64();
  return async (header, payload) => {
    const seed = ofHeader.init().update(header).digest('binary');
    const [high, low] = [0, 4].map((at) => new DataView(seed.buffer, seed.byteOffset).getUint32(at)) as [
      number,
      number,
    ];
    return Number.parseInt((await xxhash64(payload, low, high)).slice(8), 16);
  };
}

/** Offsets of all blocks and the lengths of their payloads. */
function blocksOf(bytes: Uint8Array): [number, number][] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const found: [number, number][] = [];
  for (let at = 2 * UNIT; at + HEADER <= bytes.length; at += UNIT) {
    const stored = view.getUint32(at + 8, true);
    if (view.getUint32(at, true) === 0x4b42_474d && at + HEADER + stored <= bytes.length) found.push([at, stored]);
  }
  return found;
}

test('forged blocks are detected or recovered, and never trap', () =>
  withPath(async (path) => {
    const source = join(path, 'source');
    const db = await open(source);
    for (let part = 0; part < 5; part++) {
      await db.setMany(
        Array.from({ length: 200 }, (_, index) => [part * 200 + index, `${index % 7} of ${part} `.repeat(6)] as const),
      );
    }
    await db.close();
    const original = new Uint8Array(readFileSync(join(source, 'data')));
    const checksum = await blockChecksum();
    const blocks = blocksOf(original);
    assert.ok(blocks.length > 3);
    for (const [at, stored] of blocks) {
      assert.equal(
        await checksum(original.subarray(at, at + 28), original.subarray(at + HEADER, at + HEADER + stored)),
        new DataView(original.buffer).getUint32(at + 28, true),
      );
    }
    let seed = 1;
    const below = (end: number): number => (
      (seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0), (seed >>> 8) % end
    );
    let whole = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const bytes = original.slice();
      const view = new DataView(bytes.buffer);
      for (const [at, stored] of blocks) {
        if (below(3) === 0) continue;
        for (let count = 1 + below(6); count > 0; count--) {
          // Lengths are forged too, and the beginning more often than the rest.
          const place =
            below(8) === 0 ? at + 12 + below(3) : at + HEADER + below(below(2) === 0 ? Math.min(stored, 40) : stored);
          bytes[place] = below(2) === 0 ? below(256) : bytes[place]! ^ (1 << below(8));
        }
        view.setUint32(
          at + 28,
          await checksum(bytes.subarray(at, at + 28), bytes.subarray(at + HEADER, at + HEADER + stored)),
          true,
        );
      }
      // Without superblocks, every block is examined on its own.
      bytes.fill(0, 0, 2 * UNIT);
      const [damaged, target] = [join(path, `damaged-${round}`), join(path, `target-${round}`)];
      mkdirSync(damaged);
      writeFileSync(join(damaged, 'data'), bytes);
      // Codec names may be forged as well.
      const look = async (): Promise<void> => {
        await recover(damaged, target);
        const again = await open(target, { create: false });
        assert.deepEqual((await again.verify()).problems, []);
        whole += await again.size;
        await again.close();
      };
      await look().catch((error: { code?: string; message: string }) => {
        assert.match(String(error.code), /^KV_/, error.message);
        assert.doesNotMatch(error.message, /stopped/);
      });
      rmSync(damaged, { recursive: true });
      rmSync(target, { recursive: true, force: true });
    }
    assert.ok(whole > 0, 'some entries were recovered');
  }));
