// Keys and values of the workloads, the same for every engine. All are made before anything is measured.
const VALUES = 65_536;
const VALUE_BYTES = 150;

/** The same sequence of 32-bit numbers for the same seed (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b_79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
}

/** Random keys of 24 characters. */
export function randomKeys(count, seed) {
  const next = random(seed);
  const bytes = Buffer.alloc(12);
  return Array.from({ length: count }, () => {
    for (let at = 0; at < 12; at += 4) bytes.writeUInt32LE(next(), at);
    // Flat strings: what is put together is flattened when it is first used, which would be measured.
    return bytes.toString('hex');
  });
}

/** Some of these, some of them repeatedly. */
export function sample(items, count, seed) {
  const next = random(seed);
  return Array.from({ length: count }, () => items[next() % items.length]);
}

/** Values of 150 bytes whose second half compresses, as bytes or as text. There are so many that a node or block hardly has one twice. */
export function makeValues(kind) {
  const next = random(7);
  const half = VALUE_BYTES / 2;
  const bytes = Buffer.alloc(60);
  const values = Array.from({ length: VALUES }, () => {
    for (let at = 0; at < bytes.length; at += 4) bytes.writeUInt32LE(next(), at);
    const value = Buffer.alloc(VALUE_BYTES, '.');
    value.write(bytes.toString('base64').slice(0, half), 'latin1');
    return kind === 'text' ? value.toString('latin1') : new Uint8Array(value);
  });
  return (number) => values[number % VALUES];
}

/** Entries in batches. */
export function batches(keys, value, size) {
  return Array.from({ length: Math.ceil(keys.length / size) }, (_, batch) => {
    const start = batch * size;
    return keys.slice(start, start + size).map((key, at) => [key, value(start + at)]);
  });
}

export function chunks(items, size) {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, at) => items.slice(at * size, (at + 1) * size));
}
