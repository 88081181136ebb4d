// Random schedules of mirrors: commits of others, writes through mirrors, of which some fail, take-overs, mirrors that come and
// go. What each of them shows is compared with what the feed says the collection had at that version.
import assert from 'node:assert/strict';
import type { Batch, Collection, Commit, Database } from 'mangrove-kv';
import { mirror } from 'mangrove-kv/live';
import type { IndexMirror, Mirror } from 'mangrove-kv/live';
import type { Connection } from '../../src/wire/connection.ts';
import { Random } from '../tabs/random.ts';
import { Flaky } from './flaky.ts';

interface Row {
  readonly n: number;
  readonly group: number;
  readonly email?: string;
  readonly text: string;
}
type Rows = Collection<string, Row>;

const INDEXES = {
  group: { key: (row: Row) => row.group },
  parts: { key: (row: Row) => [row.group, row.group + 3], multi: true },
  email: { key: (row: Row) => row.email, unique: true },
} as const;

/** A write through a mirror, until it is settled and a later version is shown. */
interface Own {
  readonly after: Map<string, Row | undefined>;
  settled: 'no' | 'stored' | 'failed';
  /** Versions that were shown since it was settled. */
  shownSince: number;
}

interface Look {
  readonly version: number;
  readonly lower: string;
  readonly upper: string | undefined;
  readonly index: 'group' | 'parts' | undefined;
  readonly from: number;
  readonly entries: readonly (readonly [key: string, row: Row, indexKey?: number | undefined])[];
  /** Writes that are under way, in order; and those of which it may or may not be known that they are stored. */
  readonly own: readonly { readonly after: ReadonlyMap<string, Row | undefined>; readonly settled: Own['settled'] }[];
  readonly what: string;
}

export interface Counts {
  steps: number;
  looks: number;
  looksUnderWay: number;
  commits: number;
  ownWrites: number;
  rollbacks: number;
  takeOvers: number;
  shrunk: number;
  mirrors: number;
}

export function newCounts(): Counts {
  return {
    steps: 0,
    looks: 0,
    looksUnderWay: 0,
    commits: 0,
    ownWrites: 0,
    rollbacks: 0,
    takeOvers: 0,
    shrunk: 0,
    mirrors: 0,
  };
}

interface Held {
  readonly mirror: Mirror<string, Row> | IndexMirror<string, Row>;
  readonly lower: string;
  upper: string | undefined;
  readonly index: 'group' | 'parts' | undefined;
  readonly from: number;
  readonly maxBytes: number;
  isShrunk: boolean;
}

const KEYS = 40;
const keyOf = (n: number): string => `k${String(n).padStart(3, '0')}`;
const soon = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Runs one schedule in a collection of its own. Throws for what is wrong, with the seed. */
export async function runSchedule(db: Database, seed: number, counts: Counts): Promise<void> {
  const random = new Random(seed);
  const name = `rows ${seed}`;
  const rows: Rows = db.collection(name, { indexes: INDEXES });
  const { connection } = (db as unknown as { verbs: { target: { connection: Connection } } }).verbs.target;
  const flaky = new Flaky(connection, random);
  // Handles of other tabs write `rows`; mirrors are of this one.
  const mirrored = flaky.through(db.collection(name, { indexes: INDEXES }) as Rows);
  const original: Rows = db.collection(name, { indexes: INDEXES });
  // Writes through the mirror go straight to the engine.
  const writing = ['set', 'setMany', 'delete', 'deleteMany', 'update'] as const;
  let writingNow: Own | undefined;
  for (const verb of writing) {
    const call = (...args: unknown[]): Promise<unknown> => {
      const write = writingNow!;
      return (original[verb] as (...given: unknown[]) => Promise<unknown>).apply(original, args).then(
        (result) => {
          write.settled = 'stored';
          return result;
        },
        (error: unknown) => {
          write.settled = 'failed';
          throw error;
        },
      );
    };
    Object.assign(mirrored, { [verb]: call });
  }
  Object.assign(mirrored, { index: (index: string) => flaky.through(indexOf(mirrored, index)) });

  const history = new History(name);
  const commits = db.changes();
  const following = (async () => {
    for await (const commit of commits) history.add(commit);
  })();
  await rows.setMany(Array.from({ length: random.below(KEYS) }, (_, n) => [keyOf(n), newRow(random, false)]));

  const held: Held[] = [];
  const loading: Promise<unknown>[] = [];
  const looks: Look[] = [];
  const writes: Promise<unknown>[] = [];
  const own = new Set<Own>();
  let lastVersion = -1;

  const look = (each: Held, what: string): void => {
    if (each.mirror.status !== 'ready') return;
    assert.ok(each.mirror.bytes <= each.maxBytes, `seed ${seed}: ${each.mirror.bytes} of ${each.maxBytes} bytes`);
    if (each.mirror.version !== lastVersion) {
      lastVersion = each.mirror.version;
      for (const write of own) if (write.settled !== 'no' && ++write.shownSince > 1) own.delete(write);
    }
    const { index, lower, upper, from } = each;
    const entries =
      index === undefined
        ? (each.mirror as Mirror<string, Row>).range().map(([key, row]) => [key, row] as const)
        : (each.mirror as IndexMirror<string, Row>)
            .range()
            .map(({ indexKey, key, value }) => [key, value, indexKey as number] as const);
    const underWay = [...own].map(({ after, settled }) => ({ after, settled }));
    looks.push({ version: each.mirror.version, lower, upper, index, from, entries, own: underWay, what });
    counts.looks++;
    if (underWay.length > 0) counts.looksUnderWay++;
  };
  const lookAtAll = (what: string): void => held.forEach((each) => look(each, what));

  const begin = (): void => {
    const index = random.pick([undefined, undefined, 'group', 'parts'] as const);
    const [a, b] = [random.below(KEYS), random.below(KEYS)].sort((x, y) => x - y) as [number, number];
    const isOpen = random.chance(0.3);
    const lower = isOpen ? '' : keyOf(a);
    const upper = isOpen ? undefined : keyOf(b + 1);
    const from = random.below(4);
    const maxBytes = random.chance(0.4) ? 500 + random.below(4500) : undefined;
    const bounds = isOpen ? {} : { gte: lower, lt: upper! };
    const isClosedSoon = random.chance(0.1);
    const made =
      index === undefined
        ? mirror(mirrored, bounds, { maxBytes })
        : mirror(mirrored, { index, gte: from }, { maxBytes });
    const each: Held = { mirror: made, lower, upper, index, from, maxBytes: maxBytes ?? Infinity, isShrunk: false };
    counts.mirrors++;
    const loaded = made.ready.then(
      () => {
        held.push(each);
        lookAtAll('loaded');
      },
      (error: { code?: string }) =>
        assert.ok(error.code === 'KV_RANGE_TOO_LARGE' || error.code === 'KV_CLOSED', String(error)),
    );
    loading.push(loaded);
    if (isClosedSoon) void soon().then(() => (made.status === 'loading' ? made.close() : undefined));
    made.subscribe(() => lookAtAll('changed'));
    made.addEventListener('shrink', ({ end }) => {
      each.isShrunk = true;
      each.upper = index === undefined ? (end as string) : 'cut';
      counts.shrunk++;
    });
    made.addEventListener('rollback', ({ error }) => {
      counts.rollbacks++;
      assert.equal((error as { code: string }).code, 'KV_UNIQUE');
    });
  };

  const writeOwn = (): void => {
    const target = random.pick(held)?.mirror;
    if (target === undefined || target.status !== 'ready') return;
    const after = new Map<string, Row | undefined>();
    const key = keyOf(random.below(KEYS));
    const row = newRow(random);
    const write: Own = { after, settled: 'no', shownSince: 0 };
    let promise: Promise<unknown>;
    const kind = random.below(4);
    const durability = random.pick(['strict', 'relaxed', 'none'] as const);
    own.add(write);
    writingNow = write;
    if (kind === 0) {
      after.set(key, undefined);
      promise = target.delete(key, { durability });
    } else if (kind === 1) {
      const list = [key, keyOf(random.below(KEYS))].map((each) => [each, newRow(random)] as const);
      for (const [each, value] of list) after.set(each, value);
      promise = target.setMany(list, { durability });
    } else {
      after.set(key, row);
      promise = target.set(key, row, { durability });
    }
    counts.ownWrites++;
    lookAtAll('written');
    writes.push(promise.catch((error: { code?: string }) => assert.equal(error.code, 'KV_UNIQUE')));
  };

  const writeOther = (): void => {
    const kind = random.below(7);
    const key = keyOf(random.below(KEYS));
    const failed = (error: { code?: string }): void => assert.equal(error.code, 'KV_UNIQUE');
    counts.commits++;
    if (kind === 0) rows.delete(key).catch(failed);
    else if (kind === 1) rows.clear({ gte: key, lt: keyOf(random.below(KEYS)) }).catch(failed);
    else if (kind === 2)
      rows
        .setMany(Array.from({ length: random.below(60) }, () => [keyOf(random.below(KEYS)), newRow(random)]))
        .catch(failed);
    else if (kind === 3) {
      const batch = db.batch().collection(rows);
      for (let left = random.below(5); left > 0; left--) {
        if (random.chance(0.3)) batch.delete(keyOf(random.below(KEYS)));
        else batch.set(keyOf(random.below(KEYS)), newRow(random));
      }
      batch.commit().catch(failed);
    } else if (kind === 4) {
      db.transaction(async (tx) => {
        const inside = tx.collection(rows);
        await inside.set(key, newRow(random, false));
        await inside.clear({ gte: keyOf(random.below(KEYS)), lt: keyOf(random.below(KEYS)) });
        await inside.set(keyOf(random.below(KEYS)), newRow(random, false));
      }).catch(failed);
    } else rows.set(key, newRow(random)).catch(failed);
  };

  begin();
  for (let left = 20 + random.below(40); left > 0; left--) {
    counts.steps++;
    const dice = random.below(20);
    if (dice < 2) begin();
    else if (dice < 8) writeOther();
    else if (dice < 13) writeOwn();
    else if (dice === 13 && held.length > 1) held.splice(random.below(held.length), 1)[0]!.mirror.close();
    else if (dice === 14) flaky.takeOver();
    else for (let turns = random.below(6); turns > 0; turns--) await soon();
    if (random.chance(0.2)) lookAtAll('any time');
  }
  // Everything comes to rest.
  for (const result of await Promise.allSettled([...loading, ...writes]))
    if (result.status === 'rejected') throw result.reason;
  // The read that has the first of these may have begun before the last write was settled.
  const first = await rest(db.batch().collection(rows), held);
  const version = held.length === 0 ? first : await rest(db.batch().collection(rows), held);
  own.clear();
  lookAtAll('at rest');
  await history.until(version);
  await commits.return();
  await following;
  counts.takeOvers += flaky.takeOvers;
  for (const each of looks) check(each, history, seed);
  for (const { mirror: each } of held) each.close();
  await db.dropCollection(name);
  for (let turns = 0; turns < 2000 && (flaky.open.size > 0 || (await db.stats()).openSnapshots > 0); turns++)
    await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(flaky.open.size, 0, `seed ${seed}: feeds or snapshots are left open`);
  assert.equal((await db.stats()).openSnapshots, 0, `seed ${seed}: scans are left open`);
}

function indexOf(collection: Rows, index: string): Rows {
  return Object.getPrototypeOf(collection).index.call(collection, index) as Rows;
}

/** Touches the range of each mirror, and waits until all of them show that. */
async function rest(batch: Batch<string, Row>, all: readonly Held[]): Promise<number> {
  // Nothing touches the range of one that has shrunk to nothing.
  const held = all.filter((each) => !each.isShrunk || each.mirror.size > 0);
  const row = { n: Math.random(), group: 3, text: '' };
  for (const lower of new Set(held.map((each) => each.lower || keyOf(0)))) batch.set(lower, row);
  if (held.length === 0) return 0;
  const { version } = await batch.commit();
  for (let turns = 0; turns < 2000; turns++) {
    if (held.every(({ mirror: each }) => each.version >= version && !each.isStale)) break;
    await new Promise((resolve) => setTimeout(resolve, turns < 50 ? 0 : 5));
  }
  for (const { mirror: each, lower, upper, isShrunk } of held)
    assert.ok(
      each.version >= version,
      `a mirror of ${lower} to ${upper}, ${isShrunk}, ${each.size} entries, ${each.status} is at ${each.version} instead of ${version}, ${each.isStale}`,
    );
  return version;
}

function newRow(random: Random, mayClash = true): Row {
  const n = random.below(1_000_000_000);
  const row = { n, group: random.below(6), text: 'x'.repeat(random.below(60)) };
  return mayClash && random.chance(0.15) ? { ...row, email: `e${random.below(3)}` } : row;
}

/** What the collection had at each version, from the feed of the database. */
class History {
  readonly #name: string;
  readonly #commits: Commit[] = [];
  #reached = 0;
  #wake: (() => void) | undefined;

  constructor(name: string) {
    this.#name = name;
  }

  add(commit: Commit): void {
    this.#commits.push(commit);
    this.#reached = commit.version;
    this.#wake?.();
  }

  async until(version: number): Promise<void> {
    while (this.#reached < version) await new Promise<void>((resolve) => (this.#wake = resolve));
  }

  /** The version of the commit that stored a row; rows have numbers of their own. */
  versionOf({ n }: Row): number {
    const stored = this.#commits.find(({ changes }) =>
      changes.some((change) => change.type === 'set' && (change.value as Row).n === n),
    );
    return stored?.version ?? Infinity;
  }

  at(version: number): Map<string, Row> {
    const state = new Map<string, Row>();
    for (const commit of this.#commits) {
      if (commit.version > version) break;
      for (const change of commit.changes) {
        if (change.collection !== this.#name) continue;
        if (change.type === 'set') state.set(change.key as string, change.value as Row);
        else if (change.type === 'delete') state.delete(change.key as string);
        else if (change.type === 'drop') state.clear();
        else if (change.type === 'clear') {
          const { gte = '', lt } = change.range as { gte?: string; lt?: string };
          for (const key of [...state.keys()]) if (key >= gte && (lt === undefined || key < lt)) state.delete(key);
        }
      }
    }
    return state;
  }
}

function check(look: Look, history: History, seed: number): void {
  const state = history.at(look.version);
  // Of a key that is being written through a mirror, either may be shown while that is not certain.
  const uncertain = new Map<string, (Row | undefined)[]>();
  for (const { after, settled } of look.own) {
    for (const [key, row] of after) {
      // A write that is stored goes on to be shown until its commit is.
      const isAhead = settled === 'stored' && row !== undefined && history.versionOf(row) > look.version;
      if (settled === 'no' || isAhead) uncertain.set(key, [row]);
      else uncertain.set(key, [...(uncertain.get(key) ?? [state.get(key)]), row]);
    }
  }
  const where = `seed ${seed}, ${look.what}, version ${look.version}, ${look.index ?? 'keys'} from ${look.lower} to ${look.upper}`;
  const expect = (key: string): readonly (Row | undefined)[] => uncertain.get(key) ?? [state.get(key)];
  const shown = new Map<string, [Row, number | undefined][]>();
  for (const [key, row, indexKey] of look.entries) shown.set(key, [...(shown.get(key) ?? []), [row, indexKey]]);
  const within = (key: string): boolean => key >= look.lower && (look.upper === undefined || key < look.upper);
  const keys = new Set([...state.keys(), ...shown.keys(), ...uncertain.keys()]);
  if (look.upper === 'cut') {
    const all = [...state]
      .flatMap(([key, row]) => entriesOf(row, look).map(([, indexKey]) => `${indexKey} ${key}`))
      .sort();
    const some = look.entries.map(([key, , indexKey]) => `${indexKey} ${key}`);
    if (uncertain.size === 0)
      assert.deepEqual(some, all.slice(0, some.length), `${where}: what is left is not the beginning`);
  } else {
    for (const key of keys) {
      if (look.index === undefined && !within(key)) {
        assert.ok(!shown.has(key), `${where}: ${key} is outside`);
        continue;
      }
      const options = expect(key).map((row) => textOf(entriesOf(row, look)));
      const actual = textOf(shown.get(key) ?? []);
      assert.ok(options.includes(actual), `${where}: ${key} shows ${actual} instead of ${options.join(' or ')}`);
    }
  }
  const order = look.entries.map(([key, , indexKey]) => (indexKey === undefined ? key : `${indexKey} ${key}`));
  assert.deepEqual(order, [...new Set(order)].sort(), `${where}: order`);
}

function entriesOf(row: Row | undefined, { index, from }: Look): [Row, number | undefined][] {
  if (row === undefined) return [];
  if (index === undefined) return [[row, undefined]];
  const indexKeys = index === 'group' ? [row.group] : [row.group, row.group + 3];
  return indexKeys.filter((key) => key >= from).map((key) => [row, key]);
}

function textOf(entries: readonly [Row, number | undefined][]): string {
  return JSON.stringify([...entries].sort((a, b) => (a[1] ?? 0) - (b[1] ?? 0)));
}
