// Records the writes that tabs reported in one round and checks the database against them.
import { COUNTERS, PARTS } from './messages.ts';
import type { Found, Kind, Outcome, Report } from './messages.ts';

interface Operation {
  readonly load: string;
  readonly n: number;
  readonly kind: Kind;
  readonly counter: number;
  readonly isStrict: boolean;
  /** When it was called and when it was answered, counted in reports. */
  readonly calledAt: number;
  answeredAt: number;
  /** Stays `maybe` if no answer arrives. */
  outcome: Outcome;
  isAnswered: boolean;
  value: number;
  /** A power cut may have taken it, though it was acknowledged: the cut's time, counted in reports. */
  cutAt: number | undefined;
}

export class Ledger {
  readonly round: number;
  readonly #operations = new Map<string, Operation>();
  readonly floors: number[] = Array.from({ length: COUNTERS }, () => 0);
  #now = 0;
  /** Whatever was acknowledged before is durable: a strict write that was called then is. */
  #durableUntil = 0;

  constructor(round: number) {
    this.round = round;
  }

  start({ load, n, kind, counter, durability }: Extract<Report, { type: 'start' }>): void {
    const id = `${load}:${n}`;
    if (this.#operations.has(id)) return;
    this.#operations.set(id, {
      load,
      n,
      kind,
      counter,
      isStrict: durability === 'strict',
      calledAt: ++this.#now,
      answeredAt: Number.POSITIVE_INFINITY,
      outcome: 'maybe',
      isAnswered: false,
      value: 0,
      cutAt: undefined,
    });
  }

  end({ load, n, outcome, value }: Extract<Report, { type: 'end' }>): Operation | undefined {
    const operation = this.#operations.get(`${load}:${n}`);
    if (operation === undefined || operation.isAnswered) return undefined;
    Object.assign(operation, { outcome, value, isAnswered: true, answeredAt: ++this.#now });
    if (outcome !== 'done') return operation;
    if (operation.isStrict) this.#durableUntil = Math.max(this.#durableUntil, operation.calledAt);
    this.#raiseFloor(operation);
    return operation;
  }

  #raiseFloor({ kind, counter, value }: Operation): void {
    if (kind === 'append') this.floors[counter] = Math.max(this.floors[counter]!, value);
  }

  /**
   * After a power cut, what was acknowledged without being durable may be there or not. Call it when
   * everything is heard that any process has said.
   */
  cutPower(): void {
    const cutAt = ++this.#now;
    this.floors.fill(0);
    for (const operation of this.#operations.values()) {
      if (operation.outcome !== 'done') continue;
      if (operation.isStrict || operation.answeredAt < this.#durableUntil) this.#raiseFloor(operation);
      else Object.assign(operation, { outcome: 'maybe', cutAt });
    }
  }

  counts(): Record<'operations' | 'done' | 'undone' | 'maybe' | 'unanswered' | 'atRisk', number> {
    const all = [...this.#operations.values()];
    const of = (outcome: Outcome): number => all.filter((operation) => operation.outcome === outcome).length;
    return {
      operations: all.length,
      done: of('done'),
      undone: of('undone'),
      maybe: of('maybe'),
      unanswered: all.filter(({ isAnswered }) => !isAnswered).length,
      atRisk: all.filter(({ cutAt }) => cutAt !== undefined).length,
    };
  }

  /** Compares the round's entries with the acknowledgements; returns all discrepancies. */
  check({ entries, ok, problems }: Found): string[] {
    const wrong: string[] = ok ? [] : problems.map((problem) => `verify: ${problem}`);
    const at = new Map(entries.map(([[, ...key], value]) => [key.join(':'), value]));
    const expect = (operation: Operation, isThere: boolean): void => {
      const { kind, load, n, outcome } = operation;
      if (outcome === 'done' && !isThere) wrong.push(`${kind} ${load}:${n} was acknowledged and is lost`);
      if (outcome === 'undone' && isThere) wrong.push(`${kind} ${load}:${n} was refused and is there`);
    };
    const all = [...this.#operations.values()];
    const of = (kind: Kind): Operation[] => all.filter((operation) => operation.kind === kind);
    this.#checkKeys(at, wrong);
    for (const operation of of('append')) {
      const { load, n, counter, value } = operation;
      const found = at.get(`append:${load}:${n}`) as readonly [number, number] | undefined;
      expect(operation, found !== undefined);
      if (found === undefined) continue;
      if (
        found[0] !== counter ||
        ((operation.outcome === 'done' || operation.cutAt !== undefined) && found[1] !== value)
      )
        wrong.push(`append ${load}:${n} is ${String(found)}, was ${counter},${value}`);
    }
    checkAppended(at, wrong);
    for (let counter = 0; counter < COUNTERS; counter++) {
      const updates = of('update').filter((operation) => operation.counter === counter);
      checkUpdates(counter, updates, (at.get(`update:${counter}`) as number | undefined) ?? 0, wrong);
    }
    for (const operation of of('insert')) {
      const { load, n } = operation;
      const parts = Array.from({ length: PARTS }, (_, part) => at.get(`insert:${load}:${n}:${part}`)).filter(
        (value) => value === n,
      ).length;
      if (parts !== 0 && parts !== PARTS) wrong.push(`insert ${load}:${n} has ${parts} of ${PARTS} entries`);
      expect(operation, parts > 0);
    }
    this.#checkRemovals(of('restore'), of('remove'), at, wrong);
    this.#checkNewestLost(at, wrong);
    for (const load of new Set(all.map((operation) => operation.load))) {
      checkPuts(
        load,
        of('put').filter((operation) => operation.load === load),
        (at.get(`put:${load}`) as number | undefined) ?? 0,
        wrong,
      );
    }
    return wrong;
  }

  /** Every key present was written by a known operation. */
  #checkKeys(at: ReadonlyMap<string, unknown>, wrong: string[]): void {
    for (const key of at.keys()) {
      const [kind, load, n] = key.split(':');
      const isKnown = kind === 'count' || kind === 'update' || kind === 'put' || this.#operations.has(`${load}:${n}`);
      if (!isKnown) wrong.push(`${key} is there, and nobody wrote it`);
    }
  }

  /** A power cut takes the newest commits only: what was called after a write that is lost is lost, too. */
  #checkNewestLost(at: ReadonlyMap<string, unknown>, wrong: string[]): void {
    const isThere = ({ kind, load, n }: Operation): boolean =>
      at.has(kind === 'append' ? `append:${load}:${n}` : `insert:${load}:${n}:0`);
    const all = [...this.#operations.values()].filter(({ kind }) => kind === 'append' || kind === 'insert');
    const there = all.filter(isThere);
    for (const lost of all) {
      const { cutAt, answeredAt } = lost;
      if (cutAt === undefined || isThere(lost)) continue;
      const later = there.find(({ calledAt }) => calledAt > answeredAt && calledAt < cutAt);
      if (later !== undefined)
        wrong.push(
          `${lost.kind} ${lost.load}:${lost.n} is lost, and ${later.kind} ${later.load}:${later.n}, which was called later, is there`,
        );
    }
  }

  #checkRemovals(
    restores: readonly Operation[],
    removes: readonly Operation[],
    at: ReadonlyMap<string, unknown>,
    wrong: string[],
  ): void {
    const removals = new Map(removes.map((operation) => [`${operation.load}:${operation.counter}`, operation]));
    for (const { load, n, outcome } of restores) {
      const isThere = at.has(`remove:${load}:${n}`);
      const removal = removals.get(`${load}:${n}`);
      if (outcome === 'undone' && isThere) wrong.push(`restore ${load}:${n} was refused and is there`);
      if (outcome !== 'done') continue;
      if (isThere && removal?.outcome === 'done')
        wrong.push(`the removal of ${load}:${n} was acknowledged and is lost`);
      if (!isThere && (removal === undefined || removal.outcome === 'undone'))
        wrong.push(`restore ${load}:${n} was acknowledged and is lost`);
    }
  }
}

/** The appends to a counter are numbered 1, 2, 3... up to the counter's value. */
function checkAppended(at: ReadonlyMap<string, unknown>, wrong: string[]): void {
  const numbers: number[][] = Array.from({ length: COUNTERS }, () => []);
  for (const [key, value] of at) {
    if (!key.startsWith('append:')) continue;
    const [counter, number] = value as readonly [number, number];
    numbers[counter]!.push(number);
  }
  for (const [counter, found] of numbers.entries()) {
    const last = (at.get(`count:${counter}`) as number | undefined) ?? 0;
    found.sort((a, b) => a - b);
    const isWhole = found.length === last && found.every((number, index) => number === index + 1);
    if (!isWhole) wrong.push(`counter ${counter} is ${last}, and its ${found.length} appends are not 1 to ${last}`);
  }
}

function checkUpdates(counter: number, updates: readonly Operation[], last: number, wrong: string[]): void {
  const done = updates.filter(({ outcome }) => outcome === 'done');
  const most = done.length + updates.filter(({ outcome }) => outcome === 'maybe').length;
  if (last < done.length || last > most)
    wrong.push(`counter ${counter} was updated ${done.length} to ${most} times and is ${last}`);
  if (new Set(done.map(({ value }) => value)).size !== done.length)
    wrong.push(`two updates of counter ${counter} gave the same value`);
}

function checkPuts(load: string, puts: readonly Operation[], last: number, wrong: string[]): void {
  const done = Math.max(0, ...puts.filter(({ outcome }) => outcome === 'done').map(({ n }) => n));
  const operation = puts.find(({ n }) => n === last);
  if (last < done) wrong.push(`put ${load}:${done} was acknowledged, and ${last} is there`);
  if (last !== 0 && (operation === undefined || operation.outcome === 'undone'))
    wrong.push(`put ${load}:${last} was not made and is there`);
}
