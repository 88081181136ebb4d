// Decodes hostile bytes with one codec and reports the outcomes.
import { openSync, writeSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { CODECS } from './codecs.mjs';
import { inputs } from './mutate.mjs';

const [id, from, count, progressPath] = process.argv.slice(2);
const codec = await CODECS[id].load();
const progress = openSync(progressPath, 'r+');
const index = Buffer.alloc(4);

const PROTOTYPES = { Object, Array, Function, String, Number, Map, Set, Date, Error, RegExp, Uint8Array };
const known = new Map(
  Object.entries(PROTOTYPES).map(([name, { prototype }]) => [name, Reflect.ownKeys(prototype).length]),
);
const polluted = () =>
  Object.entries(PROTOTYPES)
    .filter(([name, { prototype }]) => Reflect.ownKeys(prototype).length !== known.get(name))
    .map(([name]) => name);
const memory = () => {
  const { used_heap_size: heap, external_memory: external } = getHeapStatistics();
  return heap + external;
};

/** Whether the result inherits from a decoded object. */
function inheritsFromBytes(value) {
  for (const object of [value, value?.a, value?.[0]]) {
    if (typeof object !== 'object' || object === null) continue;
    const prototype = Object.getPrototypeOf(object);
    if (prototype !== null && Object.hasOwn(prototype, 'polluted')) return true;
  }
  return false;
}

const figures = { values: 0, errors: 0, slowest: { ms: 0 }, largest: { bytes: 0 }, globals: [], results: 0, named: {} };

function note(current) {
  writeSync(progress, `${JSON.stringify({ ...figures, current })}\0`, 4);
}

let number = 0;
for (const { name, bytes } of inputs(codec, CODECS[id].form, Number(count))) {
  const current = number++;
  if (current < Number(from)) continue;
  index.writeInt32LE(current);
  writeSync(progress, index, 0, 4, 0);
  // If the process dies, the bytes after the last message killed it.
  if (name !== undefined || current % 1000 === 0) note(name ?? String(current));
  const before = memory();
  const start = performance.now();
  let value;
  let error;
  try {
    value = codec.decode(bytes);
    figures.values++;
  } catch (thrown) {
    error = thrown;
    figures.errors++;
  }
  const ms = performance.now() - start;
  const grown = memory() - before;
  if (ms > figures.slowest.ms) figures.slowest = { ms, length: bytes.length, name };
  if (grown > figures.largest.bytes) figures.largest = { bytes: grown, length: bytes.length, name };
  for (const found of polluted()) if (!figures.globals.includes(found)) figures.globals.push(found);
  const inherits = error === undefined && inheritsFromBytes(value);
  if (inherits) figures.results++;
  if (name !== undefined) {
    const outcome = inherits ? 'value with a prototype from the bytes' : error === undefined ? 'value' : 'error';
    figures.named[name] =
      `${outcome}${grown > 2 ** 20 ? `, ${Math.round(grown / 2 ** 20)} MiB` : ''}${ms > 100 ? `, ${Math.round(ms)} ms` : ''}`;
  }
}
process.send(figures, () => process.exit());
