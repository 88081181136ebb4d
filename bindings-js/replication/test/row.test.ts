// What a row makes of the log's writes and of local ones, and what the entry becomes: docs/REPLICATION.md, "Where the
// state is" and "Lost history".
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { keyCodecs, open } from 'mangrove-kv';
import { ABSENT, Row, checkOf, checkOfBytes, decodeRow } from '../src/row.ts';
import type { Base, BaseValue, Histories, Pending, Shown, Stamp, StoredRow } from '../src/row.ts';
import { Tables } from '../src/tables.ts';

const db = await open('rows', { storage: 'memory' });
after(() => db.close());
// The types of the built package and of the sources have symbols of their own.
const tables = new Tables(db as never, { notes: { prefixModes: [{ prefix: 's', mode: 'strict' }] } }, 'merge');
const notes = tables.byName.get('notes')!;
const unknown = tables.table('tasks', notes.declaration);
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const value = (text: string, expiresAt = 0): NonNullable<BaseValue> => ({ value: bytes(text), expiresAt });

const stamp = (h: number, given: BaseValue, over: Partial<Stamp> = {}): Stamp => ({
  h: BigInt(h),
  device: 7n,
  n: h,
  isStrict: false,
  position: h,
  isDead: given === null,
  expiresAt: given?.expiresAt ?? 0,
  check: checkOf(given),
  ...over,
});
const base = (h: number, given: BaseValue, kept?: string): Base => ({
  stamp: stamp(h, given),
  kept: kept === undefined ? undefined : bytes(kept),
});
const pending = (n: number, given: BaseValue): Pending => ({
  n,
  check: checkOf(given),
  expiresAt: given?.expiresAt ?? 0,
});
const STEADY: Histories = { current: 1, settled: 1 };
/** The log is read once more. */
const AGAIN: Histories = { current: 2, settled: 1 };

function rowOf(
  stored: Partial<StoredRow>,
  {
    histories = STEADY,
    table = notes,
    key = 'k',
  }: { readonly histories?: Histories; readonly table?: typeof notes | typeof unknown; readonly key?: string } = {},
): Row {
  return new Row(
    table,
    keyCodecs.any.encode(key).slice(),
    histories,
    { history: 1, base: undefined, former: undefined, pending: undefined, shown: undefined, ...stored },
    new Set(),
  );
}

const text = (given: BaseValue | undefined): string | null | undefined =>
  given && new TextDecoder().decode(given.value);

test('the checksum is CRC-32C + 1 + 2^32 times the length modulo 2^20, and 0 for a delete', () => {
  assert.equal(checkOfBytes(bytes('123456789')), 0xe306_9283 + 1 + 9 * 2 ** 32);
  assert.equal(checkOf(value('')), 1);
  assert.equal(checkOf(null), 0);
  assert.ok(checkOfBytes(new Uint8Array(2 ** 20)) <= 2 ** 32);
});

test('what the log has becomes the entry, and the row has the value itself only where the entry may be something else', () => {
  for (const [stored, options, given, isEntry, isKept] of [
    [{}, {}, value('new'), true, false],
    [{}, { key: 's' }, value('new'), true, true],
    [{}, {}, value('new', 5000), true, true],
    [{}, { table: unknown }, value('new'), false, true],
    [{ pending: pending(3, value('mine')) }, {}, value('new'), false, true],
    [{ history: 1 }, { histories: AGAIN }, value('new'), false, true],
  ] as const) {
    const row = rowOf(stored, options);
    row.accept(stamp(9, given), given, false);
    assert.deepEqual([text(row.entry), row.base?.kept !== undefined], [isEntry ? 'new' : undefined, isKept]);
    assert.equal(row.isStale, !isEntry && row.pending === undefined);
  }
});

test("a local write stays the entry until the log has it, and then it is the base's or gives way", () => {
  const row = rowOf({ base: base(1, value('old')), pending: pending(3, value('mine')) });
  assert.equal(row.settle(2), undefined);
  assert.deepEqual([row.pending?.n, row.entry], [3, undefined], 'another record of this device says nothing of it');
  row.accept(stamp(3, value('mine')), value('mine'), true);
  assert.equal(row.settle(3), undefined);
  assert.deepEqual([row.pending, row.entry, row.base?.kept], [undefined, undefined, undefined]);

  const lost = rowOf({ base: base(1, value('old')), pending: pending(3, value('mine')) });
  lost.accept(stamp(9, value('theirs')), value('theirs'), false);
  assert.equal(text(lost.settle(3)), 'theirs');
  assert.deepEqual([text(lost.entry), lost.pending, lost.base?.kept], ['theirs', undefined, undefined]);

  const other = rowOf({ pending: pending(3, value('same', 1000)) });
  other.accept(stamp(9, value('same', 2000)), value('same', 2000), false);
  assert.equal(other.settle(3)?.expiresAt, 2000);
  assert.equal(other.entry?.expiresAt, 2000, 'another expiry is another value');
});

test('a set that has no effect stays pending, and a delete does not', () => {
  const row = rowOf({ pending: pending(3, value('mine')) });
  assert.equal(row.settle(3), undefined);
  assert.equal(row.pending?.n, 3);
  const removed = rowOf({ pending: pending(3, null) });
  removed.settle(3);
  assert.equal(removed.encode(), undefined);
});

test('what has expired by the log is no entry any more, unless something was written over it', () => {
  const row = rowOf({ base: base(1, value('short', 1000), 'short') });
  row.expire();
  assert.deepEqual([row.entry, row.stamp?.isDead, row.stamp?.check, row.base?.kept], [null, true, 0, undefined]);
  const written = rowOf({ base: base(1, value('short', 1000), 'short'), pending: pending(3, value('mine')) });
  written.expire();
  assert.deepEqual([written.entry, written.stamp?.isDead], [undefined, true]);
});

test('what the application writes takes the place of all that was to be put there', () => {
  const row = rowOf({ base: base(1, value('short', 5000), 'short') });
  row.revive();
  assert.equal(text(row.entry), 'short');
  row.capture(4, value('mine'));
  assert.deepEqual([row.entry, row.pending], [undefined, pending(4, value('mine'))]);
  row.revive();
  assert.equal(row.entry, undefined, 'it is over what the engine has removed');
  const stale = rowOf({ base: base(1, value('x'), 'x'), shown: ABSENT });
  stale.capture(4, value('mine'));
  assert.equal(decodeRow(stale.encode()!).shown, undefined);
});

test('a write past replication becomes what was there before, also while the log is read once more', () => {
  const row = rowOf({ base: base(1, value('strict'), 'strict') }, { key: 's' });
  row.restore();
  assert.equal(text(row.entry), 'strict');
  const again = rowOf({ base: base(1, value('strict'), 'strict') }, { key: 's', histories: AGAIN });
  assert.equal(again.base, undefined);
  again.restore();
  assert.equal(text(again.entry), 'strict');
  // Under a repair: which value it was is not known before that comes back, and nobody has lost it.
  const repaired = rowOf(
    { base: base(1, value('strict'), 'strict'), pending: pending(3, value('repair')) },
    { key: 's' },
  );
  repaired.restore();
  repaired.accept(stamp(9, value('theirs')), value('theirs'), false);
  assert.equal(repaired.settle(3), undefined);
  assert.equal(text(repaired.entry), 'theirs');
});

test('at the end of a reading what the log has takes the place of what was there, and what it has lost is put back', () => {
  // The log has it, too, and something newer.
  for (const [h, given] of [
    [1, 'old'],
    [2, 'newer'],
  ] as const) {
    const row = rowOf({ base: base(1, value('old')) }, { histories: AGAIN });
    row.accept(stamp(h, value(given)), value(given), false);
    assert.deepEqual(
      [row.conclude(true, 8), text(row.entry), row.pending, row.former, row.isStale],
      [undefined, given, undefined, undefined, false],
    );
  }
  // It has something older, or nothing.
  for (const older of [true, false]) {
    const row = rowOf({ base: base(3, value('lost')) }, { histories: AGAIN });
    if (older) row.accept(stamp(2, value('older')), value('older'), false);
    assert.deepEqual(row.conclude(true, 8)?.stamp, stamp(3, value('lost')));
    assert.deepEqual([row.entry, row.pending, row.former], [undefined, pending(8, value('lost')), undefined]);
  }
  // Nothing was lost: what is gone was deleted meanwhile.
  const gone = rowOf({ base: base(3, value('deleted')) }, { histories: AGAIN });
  assert.equal(gone.conclude(false, 8), undefined);
  assert.deepEqual([gone.entry, gone.pending, gone.encode()], [null, undefined, undefined]);
  // A value of a snapshot is no entry yet.
  const loaded = rowOf({ former: base(3, value('lost'), 'lost') }, { histories: AGAIN });
  loaded.conclude(true, 8);
  assert.equal(text(loaded.entry), 'lost');
});

test('the end of a reading leaves what was written meanwhile', () => {
  const row = rowOf({ base: base(3, value('lost')) }, { histories: AGAIN });
  row.capture(5, value('mine'));
  assert.deepEqual([row.conclude(true, 8), row.entry, row.pending?.n], [undefined, undefined, 5]);
  const before = rowOf({ base: base(3, value('lost')), pending: pending(4, value('mine')) }, { histories: AGAIN });
  assert.deepEqual([before.conclude(true, 8), before.entry, before.pending?.n], [undefined, undefined, 4]);
});

test('of two values that were lost the later one is put back', () => {
  const row = rowOf({ base: base(3, value('mine')) }, { histories: AGAIN });
  row.load(base(2, value('of an older snapshot'), 'of an older snapshot'), true);
  assert.equal(row.former?.stamp.h, 3n);
  row.load(base(4, value('of a newer one'), 'of a newer one'), true);
  assert.equal(row.former?.stamp.h, 4n);
});

test('what was read of a history that was not read to its end is not put back', () => {
  const row = rowOf(
    { history: 2, base: base(3, value('x'), 'x'), shown: ABSENT },
    { histories: { current: 3, settled: 1 } },
  );
  assert.deepEqual([row.base, row.former], [undefined, undefined]);
  const known = rowOf(
    { history: 2, base: base(3, value('x'), 'x'), former: base(1, value('settled')), shown: ABSENT },
    { histories: { current: 3, settled: 1 } },
  );
  assert.equal(known.former?.stamp.h, 1n);
  // The entry is this device's own write, which that history had confirmed.
  const own = rowOf(
    { history: 2, base: base(3, value('x'), 'x'), former: base(1, value('settled')) },
    { histories: { current: 3, settled: 1 } },
  );
  assert.deepEqual([own.former?.stamp.h, own.conclude(true, 8)?.stamp.h], [3n, 3n]);
});

test('a row knows what the entry is, whatever is read over it', () => {
  const shown = (row: Row): unknown => row.encode() && (decodeRow(row.encode()!).shown ?? null);
  const of = (text: string): Shown => ({ check: checkOf(value(text)), expiresAt: 0 });
  const again = { histories: AGAIN };
  // What was there before, however much is read, and if nothing was there.
  for (const [stored, is] of [
    [{ base: base(1, value('old')) }, of('old')],
    [{}, ABSENT],
    [{ base: base(1, null) }, ABSENT],
  ] as const) {
    const row = rowOf(stored, again);
    row.accept(stamp(2, value('new')), value('new'), false);
    assert.deepEqual(shown(row), is);
    row.accept(stamp(3, value('newer', 50)), value('newer', 50), false);
    row.expire();
    assert.deepEqual(shown(row), is);
    row.conclude(false, 8);
    assert.deepEqual([shown(row), row.entry], [null, null]);
  }
  // The value of a lost record that only a snapshot has.
  const loaded = rowOf({}, again);
  loaded.load(base(3, value('lost'), 'lost'), true);
  assert.deepEqual(shown(loaded), ABSENT);
  // An own write: until it comes back that is pending, then it is the entry whether it has won or not.
  const own = rowOf({ base: base(1, value('old')), pending: pending(3, value('mine')) }, again);
  own.accept(stamp(3, value('mine')), value('mine'), true);
  assert.equal(shown(own), null);
  own.settle(3);
  assert.equal(shown(own), null);
  own.accept(stamp(4, value('theirs')), value('theirs'), false);
  assert.deepEqual(shown(own), of('mine'));
  const expiring = rowOf({ pending: pending(3, value('mine', 50)) }, again);
  expiring.accept(stamp(3, value('mine', 50)), value('mine', 50), true);
  expiring.settle(3);
  expiring.expire();
  assert.deepEqual(shown(expiring), { ...of('mine'), expiresAt: 50 });
  const loser = rowOf({ pending: pending(3, value('mine')) }, again);
  loser.accept(stamp(4, value('theirs')), value('theirs'), false);
  loser.settle(3);
  assert.deepEqual(shown(loser), of('mine'));
  // An own delete of which nothing remains.
  const removed = rowOf({ base: base(1, value('old')), pending: pending(3, null) }, again);
  removed.settle(3);
  assert.deepEqual(shown(removed), ABSENT);
  // A write past replication that was undone.
  const strict = rowOf({ base: base(1, value('s'), 's') }, { ...again, key: 's' });
  strict.accept(stamp(2, value('t')), value('t'), false);
  strict.restore();
  assert.deepEqual([shown(strict), text(strict.entry)], [of('s'), 's']);
  // A collection that this program does not know.
  const hidden = rowOf({ base: base(1, value('old')) }, { table: unknown });
  hidden.accept(stamp(2, value('new')), value('new'), false);
  assert.deepEqual(shown(hidden), of('old'));
  hidden.accept(stamp(3, null), null, false);
  assert.deepEqual(shown(hidden), of('old'));
});

test('a repair whose value is nowhere is given up', () => {
  const row = rowOf({ base: base(3, value('lost')) }, { histories: AGAIN });
  row.conclude(true, 8);
  row.giveUp();
  assert.deepEqual([row.entry, row.pending], [null, undefined]);
});

test("the entry of a collection that becomes known is the base's value, unless it was written", () => {
  const row = rowOf({ base: base(1, value('x'), 'x'), shown: ABSENT });
  row.materialize();
  assert.deepEqual([text(row.entry), row.isStale, row.base?.kept], ['x', false, undefined]);
  const written = rowOf({ base: base(1, value('x'), 'x'), pending: pending(3, value('mine')) });
  written.materialize();
  assert.equal(written.entry, undefined);
});
