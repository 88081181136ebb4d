// Explores every order of steps of a scenario, breadth first, and says what must hold in each state.
import { LIMIT, NEWER, Step, baseOf, expired, lostOuts, newDevice, nextOut, replay } from './model.ts';
import type { Device, Mistake, Scenario, Stamp, State, Write } from './model.ts';

export interface Explored {
  readonly states: number;
  /** States in which everything is sent and read. */
  readonly quiescent: number;
  /** What is wrong, and the shortest way there. */
  readonly violation: string | undefined;
}

type Act = readonly [label: string, act: (step: Step) => void, budget?: string | undefined];

const isIdle = ({ isChecked, isCaughtUp, mode, feed, outbox }: Device): boolean =>
  isChecked && isCaughtUp && mode === 'none' && feed.length === 0 && outbox.length === 0;

/** Everything that can happen in a state. */
function* acts(state: State, scenario: Scenario): Iterable<Act> {
  const { log, devices } = state;
  const has = (what: string): boolean => (state.left[what] ?? 0) > 0;
  for (const [index, device] of devices.entries()) {
    if (device.isGone) continue;
    const act = (what: string, run: (step: Step) => void, budget?: string): Act => [
      `${String.fromCharCode(65 + index)} ${what}`,
      run,
      budget,
    ];
    const next = nextOut(device);
    const isEnd = log.end <= device.cursor || !log.records.some(({ position }) => position > device.cursor);
    if (has('write')) {
      for (const what of scenario.may[index] ?? scenario.may.at(-1) ?? []) {
        const [name, key] = what.split(' ');
        if (name === 'strict') {
          if (isIdle(device)) yield act(what, (step) => step.strict(index, what), 'write');
        } else if (
          name === 'delete'
            ? device.entries[Number(key)] !== undefined
            : name === 'clear'
              ? device.entries.some(Boolean)
              : name !== 'newer' || (device.knows & NEWER) !== 0
        )
          yield act(what, (step) => step.write(index, what), 'write');
      }
    }
    if (scenario.isLazy === true && device.feed.length > 0) yield act('captures', (step) => step.capture(index));
    if (next !== undefined && device.isChecked && device.isCaughtUp && device.mode === 'none') {
      yield act(`sends ${next.number}`, (step) => step.send(index, 'sent'));
      if (has('reply lost'))
        yield act(
          `sends ${next.number}, and the reply is lost`,
          (step) => step.send(index, 'reply lost'),
          'reply lost',
        );
      if (has('late') && state.wire === undefined)
        yield act(`sends ${next.number}, which is late`, (step) => step.send(index, 'on its way'), 'late');
    }
    const oldest = device.outbox[0];
    const isLost =
      oldest !== undefined &&
      isEnd &&
      (lostOuts(device).length > 0 || (oldest.expect >= 0 && device.cursor !== oldest.expect));
    if (
      !device.isChecked ||
      device.mode !== 'none' ||
      !device.isCaughtUp ||
      !isEnd ||
      device.cursor < log.purged ||
      isLost
    )
      yield act('reads', (step) => step.read(index));
    else if (oldest !== undefined && nextOut(device) === undefined) {
      yield act('sends again', (step) => step.sendAgain(index, false));
      yield act('sends again under other numbers', (step) => step.sendAgain(index, true));
    }
    if (device.losses !== log.losses && device.isChecked) yield act('connects', (step) => step.connect(index));
    if (has('cut')) yield act('loses power', (step) => step.cut(index), 'cut');
    if (has('connect') && device.isChecked) yield act('connects again', (step) => step.connect(index), 'connect');
    if (
      has('gone') &&
      (device.outbox.length > 0 ||
        (log.snapshot !== undefined &&
          log.snapshot.position >= log.end &&
          isIdle(device) &&
          device.losses === log.losses))
    )
      yield act('is gone', (step) => step.leave(index), 'gone');
    if (has('copy')) yield act('is copied', (step) => step.copy(index), 'copy');
    if (has('removal') && expired(state, device).length > 0)
      yield act('removes what has expired', (step) => step.removeExpired(index), 'removal');
    if (has('clock') && device.skew > 0) yield act('has a right clock', (step) => step.rightClock(index), 'clock');
    if (has('program'))
      for (const knows of scenario.knows ?? [])
        if (knows !== device.knows)
          yield act(`has a program of ${knows.toString(2)}`, (step) => step.program(index, knows), 'program');
    if (has('check') && isIdle(device) && device.cursor > 0 && !device.isAside)
      yield act('checks', (step) => step.check(index), 'check');
    // Settled, unless a compaction does not wait for that.
    if (has('compact') && device.isChecked && device.isCaughtUp && isEnd) {
      yield act(
        'compacts',
        (step) => {
          const snapshot = step.snapshot(step.device(index));
          if (
            snapshot !== undefined &&
            (log.snapshot?.position ?? 0) < snapshot.position &&
            snapshot.position <= log.end
          )
            step.compact(index);
        },
        'compact',
      );
    }
  }
  if (state.wire !== undefined) yield ['what is late arrives', (step) => step.deliver()];
  if (has('tick')) yield ['time passes', (step) => void (step.log.clock += 5), 'tick'];
  if (has('forget')) yield ['months pass', (step) => void (step.log.clock += 200), 'forget'];
  if (has('lost'))
    for (let count = 1; count <= log.records.length; count++)
      yield [`the log loses its last ${count}`, (step) => step.loseTail(count), 'lost'];
  if (has('hole'))
    for (const record of log.records)
      if (
        devices.every(
          ({ id, formers, cursor }) =>
            cursor < record.position || (id !== record.device && formers.every(([former]) => former !== record.device)),
        )
      )
        yield [`the log loses the record at ${record.position}`, (step) => step.loseRecord(record), 'hole'];
}

function isQuiescent({ log, devices, wire }: State): boolean {
  return (
    wire === undefined &&
    devices.every(
      (device) =>
        device.isGone ||
        (isIdle(device) &&
          device.losses === log.losses &&
          !log.records.some(({ position }) => position > device.cursor)),
    )
  );
}

const shows = (stamp: { readonly isDead: boolean; readonly value: number } | undefined): number =>
  stamp === undefined || stamp.isDead ? 0 : stamp.value;

/** What must hold in every state. */
function invariant({ devices, writes, log }: State, { keys }: Scenario): string | undefined {
  for (const device of devices) {
    if (device.mode !== 'none' || device.isGone) continue;
    for (let key = 0; key < keys; key++) {
      const { base, pending, isStale } = device.rows[key] as Device['rows'][number];
      if ((device.knows & (1 << key)) === 0 || pending !== undefined || isStale || device.feed.length > 0) continue;
      const entry = device.entries[key];
      if (
        (entry?.value ?? 0) !== shows(base?.stamp) &&
        (entry !== undefined || (base?.stamp.expiry ?? 0) === 0 || (base?.stamp.expiry ?? 0) > log.clock + device.skew)
      )
        return `device ${device.id}: the entry of key ${key} is ${entry?.value ?? 'none'}, its base ${shows(base?.stamp)}`;
    }
    for (const [write, { keys: mask, kind }] of writes.entries()) {
      const of = [...device.rows.keys()].filter((key) => (mask & (1 << key)) !== 0);
      if (of.length < 2 || kind !== 'merge' || !of.some((key) => device.rows[key]?.base?.stamp.write === write))
        continue;
      for (const key of of) {
        const stamp = device.rows[key]?.base?.stamp;
        const other = stamp?.write;
        if (stamp?.isDead === true && (writes[write]?.deletes ?? 0) !== 0) continue;
        if (
          other === undefined ? (writes[write]?.deletes ?? 0) === 0 : ((writes[write]?.knew ?? 0) & (1 << other)) !== 0
        )
          return `device ${device.id} has a part of write ${write}`;
      }
    }
  }
  return undefined;
}

/** What must hold when everything is sent and read. */
function outcome(state: State, scenario: Scenario, rules: ReadonlySet<Mistake>): string | undefined {
  const { log, devices, writes } = state;
  const { times } = scenario;
  // What the log lost in its middle some devices have raised stamps above, and have parts of: they differ until a check.
  const isWhole = times['hole'] === undefined;
  const isPlain = ['hole', 'lost', 'gone', 'forget', 'cut', 'copy'].every((what) => times[what] === undefined);
  const textOf = isWhole
    ? baseOf
    : ({ rows }: Device): string => rows.map(({ base }) => `${shows(base?.stamp)}`).join();
  const made = replay(log.all, state, scenario, rules);
  const right = textOf(made);
  for (const device of devices) {
    if (device.isAside || device.isGone) continue;
    if (textOf(device) !== right) return `device ${device.id} has ${textOf(device)}, and the log says ${right}`;
    if (
      (isPlain && Object.keys(device.parts).length > 0) ||
      (isWhole && Object.keys(device.parts).join() !== Object.keys(made.parts).join()) ||
      Object.values(device.parts).some((time) => time < device.time - LIMIT)
    )
      return `device ${device.id} has parts that wait for others: ${Object.keys(device.parts).join()}`;
    for (const [key, { pending }] of device.rows.entries())
      if (pending !== undefined) return `device ${device.id} waits for a write of key ${key}, which nobody sends`;
    if (
      times['compact'] !== undefined &&
      device.cursor > 0 &&
      new Step(state, scenario, rules).snapshot(device) === undefined
    )
      return `device ${device.id} cannot compact`;
    for (let key = 0; key < scenario.keys && state.left['forget'] !== 0; key++) {
      const stamp = device.rows[key]?.base?.stamp;
      const { deletes = 0, expiry = 0 } = writes[stamp?.write ?? -1] ?? {};
      if (stamp?.isDead === true && (deletes & (1 << key)) === 0 && (expiry === 0 || expiry > log.clock))
        return `key ${key} is gone, and write ${stamp.write} has not expired`;
      const why = replaced(
        writes.map((write, at) => ({ ...write, at })).filter(({ isRefused }) => !isRefused),
        key,
        stamp,
      );
      if (
        why !== undefined &&
        replaced(
          writes
            .map((write, at) => ({ ...write, at }))
            .filter(({ isRefused, isUnknown, at }) => !isRefused && (!isUnknown || at === stamp?.write)),
          key,
          stamp,
        ) !== undefined
      )
        return why;
    }
  }
  return undefined;
}

/** A key has a write that nobody who wrote later knew. */
function replaced(
  writes: readonly (Write & { readonly at: number })[],
  key: number,
  stamp: Stamp | undefined,
): string | undefined {
  const alive = writes.filter(({ keys }) => (keys & (1 << key)) !== 0);
  const newest = alive.filter(({ at }) => alive.every(({ knew }) => (knew & (1 << at)) === 0));
  const isOf = newest.some(({ at }) => at === stamp?.write);
  if (
    isOf ||
    (shows(stamp) === 0 &&
      !stamp?.expiry &&
      (newest.length === 0 || newest.some(({ deletes }) => (deletes & (1 << key)) !== 0)))
  )
    return undefined;
  return `key ${key} is of write ${stamp?.write ?? 'none'}, and ${newest.map(({ at }) => at).join(' and ') || 'none that was not refused'} replaced that`;
}

/** 53 bits of a part of the state, which no step changes. */
const hashes = new WeakMap<object, number>();
function hashOf(part: object | undefined): number {
  if (part === undefined) return 0;
  let hash = hashes.get(part);
  if (hash === undefined) hashes.set(part, (hash = hashText(JSON.stringify(part))));
  return hash;
}

function hashText(text: string): number {
  let [a, b] = [0xdead_beef, 0x41c6_ce57];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    a = Math.imul(a ^ code, 0x9e37_79b1);
    b = Math.imul(b ^ code, 0x5f35_6495);
    a ^= a >>> 15;
    b ^= b >>> 13;
  }
  return (b >>> 11) * 2 ** 32 + (a >>> 0);
}

function hashOfState({ log, writes, left, wire, numbers, devices }: State): number {
  const { records, all, snapshot, keys, ...rest } = log;
  return hashText(
    [
      JSON.stringify(rest),
      ...[...records, undefined, ...all, snapshot, keys, writes, left, wire, numbers, ...devices].map(hashOf),
    ].join(),
  );
}

export function begin(scenario: Scenario): State {
  const { devices, keys, skew, times } = scenario;
  let state: State = {
    log: {
      records: [],
      end: 0,
      purged: 0,
      clock: 10,
      serial: 1,
      nextId: 100,
      snapshot: undefined,
      keys: {},
      losses: 0,
      all: [],
    },
    devices: Array.from({ length: devices }, (_, index) =>
      newDevice(index + 1, keys, skew?.[index] ?? 0, scenario.knows?.[0] ?? -1),
    ),
    writes: [],
    left: times,
    wire: undefined,
    numbers: {},
    broken: undefined,
  };
  const run = (act: (step: Step) => void): void => {
    const step = new Step(state, scenario, new Set());
    act(step);
    state = step.state;
  };
  for (const index of state.devices.keys()) run((step) => step.read(index));
  for (const what of scenario.begin ?? []) {
    run((step) => (what.startsWith('strict') ? step.strict(0, what) : step.write(0, what)));
    run((step) => step.capture(0));
    run((step) => step.send(0, 'sent'));
    for (const index of state.devices.keys()) run((step) => step.read(index));
  }
  return state;
}

/** Explores all of a scenario, or up to the first violation. */
export function explore(scenario: Scenario, mistakes: readonly Mistake[] = [], limit = 300_000): Explored {
  const wrong = new Set(mistakes);
  const ids = new Map<number, number>();
  const parents: number[] = [];
  const labels: string[] = [];
  const [froms, tos]: [number[], number[]] = [[], []];
  const calm: number[] = [];
  const trace = (id: number, why: string): string => {
    const steps: string[] = [];
    for (let at = id; at > 0; at = parents[at] as number) steps.unshift(labels[at] as string);
    return `${scenario.name}: ${why}\n${steps.map((step, index) => `  ${index + 1}. ${step}`).join('\n')}`;
  };
  const result = (violation?: string): Explored => ({ states: parents.length, quiescent: calm.length, violation });
  let level: { readonly id: number; readonly state: State }[] = [];
  const visit = (state: State, from: number, label: string, into: typeof level): string | undefined => {
    const hash = hashOfState(state);
    let id = ids.get(hash);
    if (id === undefined) {
      id = parents.length;
      ids.set(hash, id);
      parents.push(from);
      labels.push(label);
      const isCalm = isQuiescent(state);
      if (isCalm) calm.push(id);
      const why = state.broken ?? invariant(state, scenario) ?? (isCalm ? outcome(state, scenario, wrong) : undefined);
      if (why !== undefined) return trace(id, why);
      into.push({ id, state });
    }
    if (from >= 0 && from !== id) {
      froms.push(from);
      tos.push(id);
    }
    return undefined;
  };
  visit(begin(scenario), -1, '', level);
  while (level.length > 0) {
    const next: typeof level = [];
    for (const { id, state } of level) {
      for (const [label, act, budget] of acts(state, scenario)) {
        const step = new Step(state, scenario, wrong);
        if (budget !== undefined) step.use(budget);
        act(step);
        const violation = visit(step.state, id, label, next);
        if (violation !== undefined) return result(violation);
      }
      if (parents.length > limit) throw new Error(`${scenario.name} has more than ${limit} states`);
    }
    level = next;
  }
  const stuck = firstStuck(parents.length, froms, tos, calm);
  return result(
    stuck === undefined
      ? undefined
      : trace(stuck, 'nothing leads from here to a state in which everything is sent and read'),
  );
}

/** The first state from which no quiescent one can be reached. */
function firstStuck(
  count: number,
  froms: readonly number[],
  tos: readonly number[],
  calm: readonly number[],
): number | undefined {
  const starts = new Int32Array(count + 1);
  for (const to of tos) starts[to + 1]!++;
  for (let at = 0; at < count; at++) starts[at + 1]! += starts[at]!;
  const into = new Int32Array(tos.length);
  const filled = starts.slice();
  for (const [edge, to] of tos.entries()) into[filled[to]!++] = froms[edge]!;
  const isLive = new Uint8Array(count);
  const open = [...calm];
  for (const at of open) isLive[at] = 1;
  while (open.length > 0) {
    const at = open.pop() as number;
    for (let edge = starts[at]!; edge < starts[at + 1]!; edge++) {
      const from = into[edge]!;
      if (isLive[from] === 1) continue;
      isLive[from] = 1;
      open.push(from);
    }
  }
  const found = isLive.indexOf(0);
  return found < 0 ? undefined : found;
}
