// Random and mutilated messages to the real engine: each is answered, none ends the engine, and
// what was stored stays.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { checkOptions } from '../src/api/options.ts';
import { Op } from '../src/wire/opcodes.ts';
import { ReplyReader, RequestWriter } from '../src/wire/protocol.ts';
import { EngineHost } from '../src/engine/engine-host.ts';
import { MemoryStorage } from '../src/storage/memory.ts';
import { chance } from './support/kit.ts';

const module = new WebAssembly.Module(readFileSync(new URL('../dist/mangrove_bg.wasm', import.meta.url)));
const { engine } = checkOptions({});
const USE = new RequestWriter().u8(Op.use).uv(1).str('').str('any').str('structured').view();
const KEEP = new RequestWriter().u8(Op.use).uv(0).str('keep').str('any').str('structured').view();
const OPS = Object.values(Op).filter((op) => op !== Op.close);

function openHost(): EngineHost {
  const host = EngineHost.open(module, new MemoryStorage(), engine);
  host.execute(KEEP);
  host.execute(USE);
  host.execute(new RequestWriter().u8(Op.set).u8(0).uv(0).str('kept').str('value').view());
  return host;
}

/** A request with plausible fields, for collection 1. */
function request(random: () => number): RequestWriter {
  const writer = new RequestWriter();
  const pick = (...numbers: number[]): number => numbers[Math.floor(random() * numbers.length)] as number;
  const key = (): string => `k${Math.floor(random() * 50)}`;
  writer.u8(pick(...OPS));
  for (let fields = Math.floor(random() * 9); fields > 0; fields--) {
    const kind = random();
    if (kind < 0.4) writer.u8(pick(0, 1, 1, 2, 4, 5, 15, 255));
    else if (kind < 0.7) writer.str(key());
    else if (kind < 0.9) writer.uv(Math.floor(2 ** (random() * 53)));
    else writer.range({ lower: new TextEncoder().encode(key()), upper: new TextEncoder().encode(key()) });
  }
  return writer;
}

test('any message is answered', () => {
  const random = chance(5);
  let host = openHost();
  for (let round = 0; round < 5000; round++) {
    const writer = new RequestWriter();
    for (let requests = Math.ceil(random() * 4); requests > 0; requests--) writer.raw(request(random).view());
    const bytes = writer.view();
    for (let damage = Math.floor(random() * 3); damage > 0; damage--) {
      bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    }
    const isClosing = bytes.includes(Op.close);
    const reply = host.execute(bytes);
    assert.ok(reply.length > 0);
    assert.ok((reply[0] as number) <= 1, 'a reply begins with its status');
    if (isClosing) host = openHost();
    if (round % 1000 === 0) {
      const kept = new ReplyReader(host.execute(new RequestWriter().u8(Op.get).uv(0).uv(0).str('kept').view()));
      // The collection may have been cleared or dropped by chance, but is read without an error.
      assert.equal(kept.u8(), 0);
    }
  }
  const report = new ReplyReader(
    host.execute(
      new RequestWriter()
        .u8(Op.verify)
        .uv(2 ** 52)
        .uv(2 ** 52)
        .view(),
    ),
  );
  assert.deepEqual([report.u8(), report.u8()], [0, 1]);
  assert.equal(report.uv(), report.uv());
  assert.equal((JSON.parse(report.str()) as { ok: boolean }).ok, true);
});

test('lengths that promise more bytes than there are do no harm', () => {
  const host = openHost();
  for (const op of OPS) {
    for (const promise of [2 ** 31, 2 ** 32, 2 ** 53 - 1]) {
      for (let zeros = 0; zeros < 8; zeros++) {
        const writer = new RequestWriter().u8(op);
        for (let count = 0; count < zeros; count++) writer.u8(0);
        assert.ok(host.execute(writer.uv(promise).view()).length > 0);
      }
    }
    assert.ok(
      host.execute(new Uint8Array([op, ...Array<number>(12).fill(0xff)])).length > 0,
      'a number without an end',
    );
  }
  const reader = new ReplyReader(host.execute(new RequestWriter().u8(Op.get).uv(0).uv(0).str('kept').view()));
  assert.equal(reader.u8(), 0);
});

test('numbers survive the protocol', () => {
  for (const number of [0, 1, 127, 128, 16383, 16384, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1]) {
    assert.equal(new ReplyReader(new RequestWriter().uv(number).view()).uv(), number);
  }
});

test('memory grows in large steps', () => {
  const storage = new MemoryStorage();
  const host = EngineHost.open(module, storage, { ...engine, cacheBytes: 64 << 20 });
  const sizes = new Set<number>([host.memoryBytes]);
  host.execute(KEEP);
  for (let key = 0; key < 30_000; key++) {
    host.execute(new RequestWriter().u8(Op.set).u8(2).uv(0).str(`key ${key}`).str('v'.repeat(1000)).view());
    sizes.add(host.memoryBytes);
  }
  assert.ok(Math.max(...sizes) > 24e6, 'the test needs growth');
  assert.ok(sizes.size <= Math.max(...sizes) / (8 << 20) + 2, `${sizes.size} sizes`);
});
