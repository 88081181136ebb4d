// Measures sizes and the speed of encoding and decoding: all codecs, round by round, in one
// process.
import { DATA, random } from './data.mjs';
import { median } from './numbers.mjs';
import { same } from './same.mjs';

/** Returns the encoded values if all of them decode to what structured clone returns. */
function encodeAll(codec, values) {
  try {
    const encoded = values.map((value) => new Uint8Array(codec.encode(value)));
    return encoded.every((bytes, at) => same(codec.decode(bytes), structuredClone(values[at]))) ? encoded : undefined;
  } catch {
    return undefined;
  }
}

/** Consumes results, so that no call can be optimised away. */
export const sink = { last: undefined };

/** Returns calls per second, measured over at least `ms`. */
function rate(run, inputs, ms) {
  let calls = 0;
  const start = performance.now();
  let elapsed;
  do {
    for (const input of inputs) sink.last = run(input);
    calls += inputs.length;
    elapsed = performance.now() - start;
  } while (elapsed < ms);
  return (calls / elapsed) * 1000;
}

export function measureSizes(codecs) {
  return Object.entries(DATA).map(([name, values]) => ({
    name,
    values: Object.fromEntries(
      Object.entries(codecs).map(([id, codec]) => {
        const encoded = encodeAll(codec, values);
        return [id, encoded && encoded.reduce((sum, bytes) => sum + bytes.length, 0) / encoded.length];
      }),
    ),
  }));
}

export function measureSpeed(codecs, { rounds, ms, say }) {
  const ids = Object.keys(codecs);
  const samples = { encode: {}, decode: {} };
  const jobs = Object.entries(DATA).map(([name, values]) => ({
    name,
    values,
    encoded: Object.fromEntries(ids.map((id) => [id, encodeAll(codecs[id], values)])),
  }));
  const next = random(3);
  // The first two rounds, in which V8 compiles, are not counted.
  for (let round = -2; round < rounds; round++) {
    say(round < 0 ? 'speed: warming up' : `speed: round ${round + 1} of ${rounds}`);
    for (const { name, values, encoded } of jobs) {
      // Changes the order, so that no codec always follows the one with the most garbage.
      const turn = ids
        .map((id) => [next(), id])
        .sort(([a], [b]) => a - b)
        .map(([, id]) => id);
      for (const id of turn.filter((candidate) => encoded[candidate] !== undefined)) {
        const figures = {
          encode: rate(codecs[id].encode, values, ms),
          decode: rate(codecs[id].decode, encoded[id], ms),
        };
        if (round < 0) continue;
        for (const [kind, figure] of Object.entries(figures)) ((samples[kind][name] ??= {})[id] ??= []).push(figure);
      }
    }
  }
  const rows = (kind) =>
    jobs.map(({ name }) => ({
      name,
      values: Object.fromEntries(ids.map((id) => [id, samples[kind][name]?.[id] && median(samples[kind][name][id])])),
    }));
  return { encode: rows('encode'), decode: rows('decode') };
}
