// Orders a module's functions so that it compresses well: each comes soon after those it resembles, within what gzip looks back to. For the idea see
// Hoag et al., "Optimizing Function Layout for Mobile Applications", 2023; the order here is found greedily.
import { readFileSync, writeFileSync } from 'node:fs';
import { Binary } from './build-binary.mjs';

/** Gzip refers back to at most 32 KiB; a little is left for what comes between. */
const WINDOW_BYTES = 30_000;
const SHINGLE_BYTES = 6;
/** A sequence of bytes that more functions have says nothing of their resemblance. */
const MAX_SHARING = 200;
/** How much more a long function has to share with the window than a short one; found by trial, as the two above. */
const LENGTH_POWER = 0.9;

/** By function, the short sequences of bytes that it shares with a few others. */
function sharedShingles(bodies) {
  const sets = bodies.map((body) => {
    const set = new Set();
    for (let at = 0; at + SHINGLE_BYTES <= body.length; at++) set.add(body.readUIntLE(at, SHINGLE_BYTES));
    return set;
  });
  const owners = new Map();
  for (const [index, set] of sets.entries()) {
    for (const shingle of set) {
      const list = owners.get(shingle);
      if (list === undefined) owners.set(shingle, [index]);
      else list.push(index);
    }
  }
  const isShared = (shingle) => owners.get(shingle).length > 1 && owners.get(shingle).length < MAX_SHARING;
  return { shingles: sets.map((set) => [...set].filter(isShared)), owners };
}

/** Indexes of the functions in their new order. */
export function orderOf(bodies) {
  const { shingles, owners } = sharedShingles(bodies);
  /** By function, the weight of what it shares with the functions in the window. */
  const scores = new Float64Array(bodies.length);
  const counts = new Map();
  const count = (index, by) => {
    for (const shingle of shingles[index]) {
      const before = counts.get(shingle) ?? 0;
      counts.set(shingle, before + by);
      if (before !== 0 && before + by !== 0) continue;
      const list = owners.get(shingle);
      const weight = by / Math.log2(1 + list.length);
      for (const owner of list) scores[owner] += weight;
    }
  };
  const left = new Set(bodies.keys());
  const order = [];
  const window = [];
  let windowBytes = 0;
  while (left.size > 0) {
    let next = -1;
    let best = -1;
    for (const index of left) {
      const score = scores[index] / bodies[index].length ** LENGTH_POWER;
      if (score > best) [next, best] = [index, score];
    }
    left.delete(next);
    order.push(next);
    window.push(next);
    count(next, 1);
    windowBytes += bodies[next].length;
    while (windowBytes > WINDOW_BYTES && window.length > 1) {
      const oldest = window.shift();
      windowBytes -= bodies[oldest].length;
      count(oldest, -1);
    }
  }
  return order;
}

/** A name as programmers know it, without the hashes that make a symbol unique. */
function readable(name) {
  return name.replace(/::h[0-9a-f]{16}$/, '').replaceAll(/\[[0-9a-f]{16}\]/g, '');
}

/** Rewrites a module with its functions in another order and without names; returns the names by the functions' numbers, imported ones first. */
export function orderFunctions(file) {
  const module = new Binary(readFileSync(file));
  const order = orderOf(module.bodies());
  const bytes = module.reordered(order);
  if (!WebAssembly.validate(bytes)) throw new Error(`${file} is not valid with its functions in another order`);
  writeFileSync(file, bytes);
  return module.names(order).map(readable);
}
