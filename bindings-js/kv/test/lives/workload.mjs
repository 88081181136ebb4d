// Commits that keep merges under way: the n-th commit of a seed is the same in each process. Most
// scatter small values over a tree that is larger than the cache; some store values out of line, up
// to more than 1 MiB, let entries expire, or clear and drop collections, which gives merges up.

/** Small enough that a few hundred commits cause several partial checkpoints. */
export const OPTIONS = { advanced: { nodeBytes: 512, unitBytes: 512 }, cacheBytes: 65_536 };

const FILL_COMMITS = 5;
const FILL_ENTRIES = 500;
const KEYS = FILL_COMMITS * FILL_ENTRIES;
/** Keys below are rewritten most often, as the front that merges pass first. */
const HEAD = 40;
const HUGE_KEYS = 2;
const LARGE_KEYS = 20;
const SIDES = ['zoo', 'side'];

function generator(seed) {
  let state = Math.imul(seed | 0, 0x9e3779b1) ^ 0x5bd1e995;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
  for (let i = 0; i < 4; i++) next();
  return { next, below: (end) => Math.floor(next() * end), chance: (probability) => next() < probability };
}

/** Incompressible, so that it fills the log. */
function bytes(random, length) {
  const words = new Uint32Array(Math.ceil(length / 4));
  let state = random.below(4_294_967_295) + 1;
  for (let i = 0; i < words.length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    words[i] = state;
  }
  return new Uint8Array(words.buffer, 0, length);
}

const many = (count, entry) => Array.from({ length: count }, entry);

/**
 * The commit `number` of `seed`: `set`, `delete`, `clear` or `drop` in a collection ('' is the
 * default one), or `purge`. `ticks` says after how many commits the entries of a `set` expire.
 */
export function commitOf(seed, number) {
  const random = generator(seed * 1_000_003 + number);
  const set = (collection, entries, more = {}) => ({ kind: 'set', collection, entries, ...more });
  if (number < FILL_COMMITS)
    return set(
      '',
      many(FILL_ENTRIES, (_, i) => [number * FILL_ENTRIES + i, bytes(random, 40)]),
    );
  const any = () => random.below(KEYS);
  const side = () => SIDES[random.below(SIDES.length)];
  const choice = random.next();
  if (choice < 0.5)
    return set(
      '',
      many(1 + random.below(20), () => [any(), bytes(random, 40)]),
      { isRelaxed: random.chance(0.2) },
    );
  if (choice < 0.62) {
    const size = random.chance(0.5) ? 700 : 20;
    const first = random.below(HEAD / 2);
    return set(
      '',
      many(1 + random.below(HEAD / 2), (_, i) => [first + i, bytes(random, size)]),
    );
  }
  if (choice < 0.76)
    return set(
      '',
      many(1 + random.below(3), () => [any(), bytes(random, 600 + random.below(2500))]),
    );
  if (choice < 0.8) return set('', [[HEAD + random.below(LARGE_KEYS), bytes(random, 4000 + random.below(60_000))]]);
  if (choice < 0.803)
    return set('', [[HEAD + LARGE_KEYS + random.below(HUGE_KEYS), bytes(random, (1 << 20) + random.below(100_000))]]);
  if (choice < 0.88) {
    const size = [10, 700, 5000][random.below(3)];
    return set(
      '',
      many(1 + random.below(10), () => [any(), bytes(random, size)]),
      { ticks: 2 + random.below(100) },
    );
  }
  if (choice < 0.92)
    return set(
      side(),
      many(1 + random.below(20), (_, i) => [i, bytes(random, random.chance(0.2) ? 900 : 30)]),
    );
  if (choice < 0.95) return { kind: 'delete', collection: '', keys: many(1 + random.below(20), any) };
  if (choice < 0.96) return { kind: 'clear', collection: side() };
  if (choice < 0.975) {
    const from = any();
    return { kind: 'clear', collection: '', range: { gte: from, lt: from + 1 + random.below(60) } };
  }
  if (choice < 0.985) return { kind: 'drop', collection: side() };
  return { kind: 'purge' };
}

/** Makes the commit; `tickMs` is the time between two commits, for what expires. */
export async function make(db, commit, tickMs) {
  const collection = commit.collection ? db.collection(commit.collection) : db;
  const durability = commit.isRelaxed === true ? 'relaxed' : 'strict';
  switch (commit.kind) {
    case 'set':
      return collection.setMany(commit.entries, {
        durability,
        ...(commit.ticks === undefined ? {} : { expireIn: commit.ticks * tickMs }),
      });
    case 'delete':
      return collection.deleteMany(commit.keys);
    case 'clear':
      return commit.range === undefined ? collection.clear() : collection.clear(commit.range);
    case 'drop':
      return db.dropCollection(commit.collection);
    default:
      return db.purgeExpired();
  }
}

/** Makes the commit in a model: a map of `collection/key` to a value and the tick when it expires. */
export function apply(state, commit, tick) {
  const name = (key) => `${commit.collection}/${key}`;
  switch (commit.kind) {
    case 'set':
      for (const [key, value] of commit.entries)
        state.set(name(key), { value, expires: commit.ticks === undefined ? Infinity : tick + commit.ticks });
      return;
    case 'delete':
      for (const key of commit.keys) state.delete(name(key));
      return;
    case 'clear':
    case 'drop': {
      const { gte = -Infinity, lt = Infinity } = commit.range ?? {};
      for (const entry of [...state.keys()]) {
        const [collection, key] = entry.split('/');
        if (collection === commit.collection && Number(key) >= gte && Number(key) < lt) state.delete(entry);
      }
    }
  }
}

/** All entries of the database, as the model names them. */
export async function read(db) {
  const found = new Map();
  for (const collection of ['', ...SIDES]) {
    const entries = await (collection === '' ? db : db.collection(collection)).entries().toArray();
    for (const [key, value] of entries) found.set(`${collection}/${key}`, value);
  }
  return found;
}

/** The first difference between what was read and the model at a tick; undefined if there is none. */
export function differenceAt(found, state, tick) {
  let live = 0;
  for (const [name, { value, expires }] of state) {
    if (expires <= tick) continue;
    live++;
    const other = found.get(name);
    if (other === undefined) return `${name} is missing`;
    if (Buffer.compare(other, value) !== 0) return `${name} has another value`;
  }
  return live === found.size ? undefined : `${found.size} entries instead of ${live}`;
}
