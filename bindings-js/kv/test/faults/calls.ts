// Calls of the API, and the effect of each on a model of the database.
import type { Database, Durability, WriteOptions } from '../../src/types/index.ts';
import type { Random } from '../tabs/random.ts';

/** Entries by collection and key: `collection/key`. */
export type State = ReadonlyMap<string, unknown>;

/** The value of a call or the code of its error, and the state after it. */
export interface Outcome {
  readonly value?: unknown;
  readonly code?: string;
  readonly state: State;
}

export interface Call {
  readonly name: string;
  readonly writes: boolean;
  readonly durability: Durability;
  issue(db: Database<string>): Promise<unknown>;
  model(state: State): Outcome;
  /** Whether its value shows that it committed something; by default each call that writes does. */
  hasCommitted?(value: unknown): boolean;
}

const KEYS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l'];
/** Too long for any node of the test's size. */
const LONG = 'k'.repeat(600);
const LATER_MS = 3_600_000;

const MAIN = 'main/';
const SIDE = 'side/';

const changed = (state: State, change: (next: Map<string, unknown>) => void): State => {
  const next = new Map(state);
  change(next);
  return next;
};

const main = (state: State): [string, unknown][] =>
  [...state]
    .filter(([key]) => key.startsWith(MAIN))
    .map(([key, value]): [string, unknown] => [key.slice(MAIN.length), value])
    .sort(([a], [b]) => (a < b ? -1 : 1));

let counter = 0;

function anyValue(random: Random): unknown {
  const number = counter++;
  if (random.chance(0.1)) return `${number} ${'v'.repeat(random.below(3000))}`;
  // Incompressible values fill the log.
  if (random.chance(0.15)) return Array.from({ length: random.below(120) }, () => random.below(1e9));
  return number;
}

/** Calls that take effect in the order in which they are made. */
export function orderedCall(random: Random): Call {
  const durability: Durability = random.chance(0.35) ? 'relaxed' : 'strict';
  const options: WriteOptions = { durability };
  const [key, other, value, second] = [random.pick(KEYS), random.pick(KEYS), anyValue(random), anyValue(random)];
  const expiry = random.chance(0.2) ? { ...options, expireIn: LATER_MS } : options;
  const write = (name: string, issue: Call['issue'], model: Call['model']): Call => ({
    name,
    writes: true,
    durability,
    issue,
    model,
  });
  const read = (name: string, issue: Call['issue'], value: (state: State) => unknown): Call => ({
    name,
    writes: false,
    durability,
    issue,
    model: (state) => ({ value: value(state), state }),
  });
  const put = (state: State): State => changed(state, (next) => next.set(MAIN + key, value));
  const both = (state: State): State =>
    changed(state, (next) => {
      next.set(MAIN + key, value);
      next.set(SIDE + other, second);
    });
  switch (random.below(20)) {
    case 0:
    case 1:
    case 2:
      return write(
        'set',
        (db) => db.set(key, value, expiry),
        (state) => ({ state: put(state) }),
      );
    case 3:
      return write(
        'sync.set',
        async (db) => db.sync.set(key, value, options),
        (state) => ({ state: put(state) }),
      );
    case 4:
    case 5:
      return write(
        'delete',
        (db) => db.delete(key, options),
        (state) => ({ value: state.has(MAIN + key), state: changed(state, (next) => next.delete(MAIN + key)) }),
      );
    case 6:
      return write(
        'setMany',
        (db) =>
          db.setMany(
            [
              [key, value],
              [other, second],
            ],
            expiry,
          ),
        (state) => ({
          state: changed(state, (next) => {
            next.set(MAIN + key, value);
            next.set(MAIN + other, second);
          }),
        }),
      );
    case 7:
      return write(
        'setMany, one key too long',
        (db) =>
          db.setMany(
            [
              [key, value],
              [LONG, 1],
            ],
            expiry,
          ),
        (state) => ({ code: 'KV_KEY_TOO_LARGE', state }),
      );
    case 8:
    case 9:
      return {
        ...write(
          'getOrInsert',
          (db) => db.getOrInsert(key, value, options),
          (state) => (state.has(MAIN + key) ? { value: state.get(MAIN + key), state } : { value, state: put(state) }),
        ),
        hasCommitted: (found) => JSON.stringify(found) === JSON.stringify(value),
      };
    case 10:
    case 11:
      return write(
        'batch with a check',
        (db) => db.batch().check(other, null).set(key, value).commit(options),
        (state) => (state.has(MAIN + other) ? { code: 'KV_CONFLICT', state } : { state: put(state) }),
      );
    case 12:
      return write(
        'batch of two collections',
        (db) =>
          db
            .batch()
            .set(key, value, random.chance(0.5) ? { expireIn: LATER_MS } : {})
            .collection(db.collection('side'))
            .set(other, second)
            .commit(options),
        (state) => ({ state: both(state) }),
      );
    case 13:
      return write(
        'clear',
        (db) => db.clear({ gte: key, lt: other }, options),
        (state) => ({
          state: changed(state, (next) => {
            for (const [entry] of main(state)) if (entry >= key && entry < other) next.delete(MAIN + entry);
          }),
        }),
      );
    case 14:
      return {
        ...write(
          'flush',
          (db) => db.flush(),
          (state) => ({ state }),
        ),
        durability: 'strict',
      };
    case 15:
    case 16:
      return read(
        'get',
        (db) => db.get(key),
        (state) => state.get(MAIN + key),
      );
    case 17:
      return read(
        'getMany',
        (db) => db.getMany([key, other]),
        (state) => [state.get(MAIN + key), state.get(MAIN + other)],
      );
    case 18:
      return read('entries', (db) => db.entries().toArray(), main);
    default:
      return read(
        'count',
        (db) => db.count({ gte: key }),
        (state) => main(state).filter(([entry]) => entry >= key).length,
      );
  }
}

/** Calls that read before they write, in several messages; made alone. */
export function lonelyCall(random: Random): Call {
  const durability: Durability = random.chance(0.35) ? 'relaxed' : 'strict';
  const [key, other, value] = [random.pick(KEYS), random.pick(KEYS), anyValue(random)];
  const call = (name: string, issue: Call['issue'], model: Call['model']): Call => ({
    name,
    writes: true,
    durability,
    issue,
    model,
  });
  const both = (state: State): State =>
    changed(state, (next) => {
      next.set(MAIN + key, [state.get(MAIN + key) ?? null, value]);
      next.delete(MAIN + other);
    });
  if (random.chance(0.5)) {
    return call(
      'update',
      (db) => db.update(key, (old) => [old === undefined ? null : 'old', value], { durability }),
      (state) => {
        const next = [state.has(MAIN + key) ? 'old' : null, value];
        return { value: next, state: changed(state, (entries) => entries.set(MAIN + key, next)) };
      },
    );
  }
  return call(
    'transaction',
    (db) =>
      db.transaction(
        async (tx) => {
          const old = await tx.get(key);
          await tx.set(key, [old ?? null, value]);
          if (random.chance(0.3))
            await tx
              .setMany([
                [other, 1],
                [LONG, 2],
              ])
              .catch(() => undefined);
          await tx.delete(other);
        },
        { durability },
      ),
    (state) => ({ state: both(state) }),
  );
}

export async function stateOf(db: Database<string>): Promise<State> {
  const state = new Map<string, unknown>();
  for (const [key, value] of await db.entries().toArray()) state.set(MAIN + key, value);
  for (const [key, value] of await db.collection<string>('side').entries().toArray()) state.set(SIDE + key, value);
  return state;
}

/** Like `textOf`, with long values truncated. */
export function shortTextOf(state: State): string {
  return [...state]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${key}=${(JSON.stringify(value) ?? '').slice(0, 12)}`)
    .join(' ');
}

/** Equal entries give equal texts. */
export function textOf(state: State): string {
  return JSON.stringify([...state].sort(([a], [b]) => (a < b ? -1 : 1)));
}
