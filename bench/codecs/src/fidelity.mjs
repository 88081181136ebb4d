// Compares round trips with structured clone.
import { same } from './same.mjs';
import { REFUSED, VALUES } from './values.mjs';

const all = Object.entries(VALUES).flatMap(([group, values]) =>
  Object.entries(values).map(([name, make]) => ({ group, name, make })),
);

/** The group in which the position of views in their buffers matters. */
const comparison = (group) => ({ withBuffers: group === 'buffers under views' });

function attempt(run) {
  try {
    return { value: run() };
  } catch (error) {
    return { error };
  }
}

/** Checks the comparison itself: it must not accept everything. */
export function checkComparison() {
  const clones = all.map(({ make }) => structuredClone(make()));
  for (const [at, clone] of clones.entries()) {
    const options = comparison(all[at].group);
    if (!same(structuredClone(clone), clone, options)) throw new Error(`a clone of ${all[at].name} is not the same`);
    const other = clones.findIndex((candidate, index) => index !== at && same(candidate, clone, options));
    if (other >= 0) throw new Error(`${all[at].name} is the same as ${all[other].name}`);
  }
  const shared = {};
  const different = [
    [
      [shared, shared],
      [{}, {}],
    ],
    [
      [{}, {}],
      [shared, shared],
    ],
    [[0], [-0]],
    [[undefined], new Array(1)],
    [{ a: undefined }, {}],
    [new Map([[1, 2]]), new Map([[1, 3]])],
    [Buffer.of(1), Uint8Array.of(1)],
    [{}, Object.create(null)],
    [new Date(0), new Date(1)],
    [new Error('a'), new TypeError('a')],
    [Object(1), Object(2)],
    [new Set([1, 2]), new Set([2, 1])],
    [/a/g, /a/i],
    [Object(1), 1],
    [new Uint8Array(1), new Int8Array(1)],
    [Uint8Array.of(1).buffer, Uint8Array.of(2).buffer],
  ];
  for (const [a, b] of different) if (same(a, b)) throw new Error('different values are the same');
}

/** `kept`, `refused` by encode, `fails` in decode, or `differs`, the worst: a silent change. */
function outcome(codec, make, options) {
  // Reading some values changes them. Both are created on one line, which an error's stack contains.
  const [value, other] = [1, 2].map(() => make());
  const expected = structuredClone(other);
  const encoded = attempt(() => codec.encode(value));
  if (encoded.error !== undefined) return 'refused';
  // Some decoders share memory with their input, or reuse their output buffer.
  const decoded = attempt(() => codec.decode(new Uint8Array(encoded.value)));
  if (decoded.error !== undefined) return 'fails';
  return same(decoded.value, expected, options) ? 'kept' : 'differs';
}

function refusal(codec, value) {
  return attempt(() => codec.encode(value)).error === undefined ? 'differs' : 'kept';
}

/** Whether a decoded value changes with its bytes: a store reuses the memory of stored bytes. */
function independence(codec) {
  const bytes = new Uint8Array(codec.encode({ bytes: Uint8Array.of(1, 2, 3) }));
  const { value } = attempt(() => codec.decode(bytes));
  const before = JSON.stringify(value);
  bytes.fill(0);
  return JSON.stringify(value) === before ? 'kept' : 'differs';
}

/** Returns rows of outcomes, keyed by codec name. */
export function measureFidelity(codecs) {
  const rows = [];
  const row = (group, name, run) =>
    rows.push({
      group,
      name,
      outcomes: Object.fromEntries(Object.entries(codecs).map(([id, codec]) => [id, run(codec)])),
    });
  for (const { group, name, make } of all) row(group, name, (codec) => outcome(codec, make, comparison(group)));
  for (const [name, make] of Object.entries(REFUSED))
    row('refused, as structured clone does', name, (codec) => refusal(codec, make()));
  row('memory', 'bytes that were decoded stay when the encoded ones change', independence);
  return rows;
}
