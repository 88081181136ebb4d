// Compares a database over the storage with a Map, across several openings.
import type { Database } from 'mangrove-kv';
import { bytes, chance, difference } from './bytes.ts';
import type { Check, Context, Subject } from './context.ts';

const ROUNDS = 4;
const STEPS = 120;
const KEYS = 3000;

type Model = Map<number, Uint8Array>;

async function change(db: Database, model: Model, next: () => number): Promise<void> {
  const below = (limit: number): number => Math.floor(next() * limit);
  const value = (): Uint8Array => bytes(below(next() < 0.97 ? 400 : 60_000), below(1e9));
  for (let step = 0; step < STEPS; step++) {
    const kind = next();
    if (kind < 0.5) {
      const entries = Array.from({ length: 1 + below(30) }, () => [below(KEYS), value()] as const);
      await db.setMany(entries, { durability: (['strict', 'relaxed', 'none'] as const)[below(3)] });
      for (const [key, stored] of entries) model.set(key, stored);
    } else if (kind < 0.8) {
      const keys = Array.from({ length: 1 + below(20) }, () => below(KEYS));
      await db.deleteMany(keys);
      for (const key of keys) model.delete(key);
    } else if (kind < 0.95) {
      const [key, stored] = [below(KEYS), value()];
      await db.transaction(async (tx) => {
        if (await tx.has(key)) await tx.delete(key);
        else await tx.set(key, stored);
      });
      if (!model.delete(key)) model.set(key, stored);
    } else {
      const from = below(KEYS);
      await db.clear({ gte: from, lt: from + 50 });
      for (let key = from; key < from + 50; key++) model.delete(key);
    }
  }
}

async function compare({ assert, equal }: Context, db: Database, model: Model): Promise<void> {
  const found = await db.entries().toArray();
  const expected = [...model].sort(([a], [b]) => a - b);
  equal(found.length, expected.length, 'entries');
  for (const [index, [key, value]] of expected.entries()) {
    const entry = found[index];
    assert(
      entry?.[0] === key && difference(entry[1] as Uint8Array, value) === undefined,
      `the entry ${key} is as it was written`,
    );
  }
  const report = await db.verify();
  assert(report.ok, `verify finds no damage: ${report.problems.map((problem) => problem.message).join('; ')}`);
}

export function checkDatabase(context: Context): Check[] {
  const { check, equal, open } = context;
  const options = { cacheBytes: 256 << 10 };

  const work = async (subject: Subject, unitBytes: number): Promise<void> => {
    const model: Model = new Map();
    const next = chance(unitBytes);
    for (let round = 0; round < ROUNDS; round++) {
      const db = await open(subject.storage, { ...options, advanced: { unitBytes }, create: round === 0 });
      try {
        await compare(context, db, model);
        await change(db, model, next);
        await compare(context, db, model);
      } finally {
        await db.close();
      }
      await subject.reopen();
    }
  };

  return [
    check('a database keeps its entries across several openings', (subject) => work(subject, 4096)),
    check('a database with small units keeps its entries across several openings', (subject) => work(subject, 512)),

    check('opening a storage without a database reports KV_NOT_FOUND', async (subject) => {
      const failure = await open(subject.storage, { create: false }).then(
        () => undefined,
        (error: unknown) => error,
      );
      equal((failure as { code?: unknown } | undefined)?.code, 'KV_NOT_FOUND', 'code of the failed open');
    }),
  ];
}
