// Rows of the workloads, the same for every store, made from their numbers.
import type { Entry, Row } from './peers/peer.ts';

/** Keys that share a prefix. */
export const GROUP = 100;

const CITIES = [
  'Amsterdam',
  'Bergen',
  'Cádiz',
  'Durban',
  'Espoo',
  'Fès',
  'Győr',
  'Hobart',
  'Ibadan',
  'Jaipur',
  'Kyoto',
  'Lima',
  'Mérida',
  'Nuuk',
  'Osaka',
  'Porto',
];
const TAGS = ['new', 'paying', 'trial', 'invited', 'staff', 'blocked', 'beta', 'press'];

/** The same sequence of 32-bit numbers for the same seed (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b_79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
}

export const prefixOf = (group: number): string => `${String(group).padStart(5, '0')}/`;

export const keyOf = (number: number): string =>
  `${prefixOf(Math.floor(number / GROUP))}${String(number).padStart(8, '0')}`;

/** About 150 bytes of JSON, of which the random parts hardly compress. */
export function rowOf(number: number, change = 0): Row {
  const next = random(number * 31 + change);
  const name = `${next().toString(36)} ${next().toString(36)}`;
  return {
    id: number,
    name,
    email: `${next().toString(36)}@example.org`,
    city: CITIES[next() % CITIES.length] as string,
    tags: [TAGS[next() % TAGS.length] as string, TAGS[next() % TAGS.length] as string],
    balance: (next() % 1_000_000) / 100,
    active: next() % 2 === 0,
  };
}

export function entries(from: number, to: number): Entry[] {
  return Array.from({ length: to - from }, (_, at) => [keyOf(from + at), rowOf(from + at)]);
}

/** In an order that is the same each time. */
export function shuffled<T>(items: readonly T[], seed: number): T[] {
  const next = random(seed);
  const mixed = [...items];
  for (let at = mixed.length - 1; at > 0; at--) {
    const other = next() % (at + 1);
    [mixed[at], mixed[other]] = [mixed[other] as T, mixed[at] as T];
  }
  return mixed;
}

/** Some of the numbers below `end`, some of them repeatedly. */
export function sample(end: number, count: number, seed: number): number[] {
  const next = random(seed);
  return Array.from({ length: count }, () => next() % end);
}
