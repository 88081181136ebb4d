// Replication as docs/REPLICATION.md says it, and nothing of how the package does it: a log, snapshots, and
// devices as plain values. Nothing here is imported from the package.

/** A wrong rule that is put in the place of a right one. */
export type Mistake = string;

/** Of a key. `value` 0: none. `write` is no part of the protocol: it says whose write the value is. */
export interface Entry {
  readonly value: number;
  readonly expiry: number;
  readonly write: number;
}
export interface Stamp extends Entry {
  readonly h: number;
  readonly device: number;
  readonly n: number;
  readonly position: number;
  readonly isDead: boolean;
}
export interface Base {
  readonly stamp: Stamp;
  readonly isKept: boolean;
}
export interface Row {
  readonly base: Base | undefined;
  readonly former: Base | undefined;
  readonly isStale: boolean;
  readonly pending: { readonly n: number; readonly value: number; readonly expiry: number } | undefined;
}
export interface Op {
  readonly type: 'put' | 'clear';
  readonly key: number;
  readonly value: number;
  readonly expiry: number;
  readonly write: number;
  readonly stamp?: Stamp;
}
export type Kind = 'merge' | 'strict' | 'repair' | 'check' | 'newer';
interface Tx {
  readonly base: number;
  readonly h: number;
  readonly ops: readonly Op[];
}
export interface Body {
  readonly n: number;
  readonly txs: readonly Tx[];
  readonly digest?: string;
}
/** A record in the outbox. `part` of `parts`: the operations of a long one are spread over them. */
export interface Out {
  readonly number: number;
  readonly kind: Kind;
  readonly body: Body;
  readonly part: number;
  readonly parts: number;
  readonly isUnbased: boolean;
  readonly expect: number;
}
export interface LogRecord extends Out {
  readonly device: number;
  readonly back: number;
  readonly position: number;
  readonly time: number /** Tells it from all others, as the server's time to the millisecond does. */;
  readonly serial: number;
}
/** Parts that wait for the others, by `<device>:<number>`, and the log's time of each. */
type Parts = Readonly<Record<string, number>>;
type Applied = Readonly<Record<number, readonly [number: number, chain: number]>>;
export interface Snapshot {
  readonly position: number;
  readonly at: string;
  readonly time: number;
  readonly rows: readonly (Base | undefined)[];
  readonly applied: Applied;
  readonly parts: Parts;
  readonly seen: number;
  readonly purged: number;
  readonly digest: string /** The snapshot before, as the manifest names it. */;
  readonly previous: Snapshot | undefined;
}
export interface Log {
  records: readonly LogRecord[];
  end: number;
  purged: number;
  clock: number;
  serial: number;
  nextId: number;
  snapshot: Snapshot | undefined;
  /** By `<device>:<number>`: what servers take for a record that they have. */
  keys: Readonly<Record<string, number>>;
  /** Counts losses, so that a device can notice them when it connects. */
  losses: number;
  /** All records of the present history, purged ones, too: no part of the protocol. */
  all: readonly LogRecord[];
}
type Commit = {
  readonly kind: 'merge' | 'newer' | 'long' | 'removal';
  readonly base: number;
  readonly ops: readonly Op[];
  readonly seen: number;
};
export interface Device {
  id: number;
  formers: readonly (readonly [id: number, number: number, chain: number])[];
  next: number;
  hlc: number;
  cursor: number;
  at: string;
  time: number;
  mode: 'none' | 'lost' | 'reread';
  knows: number;
  isAside: boolean;
  isDiverged: boolean;
  skew: number;
  rows: Row[];
  entries: (Entry | undefined)[];
  feed: readonly Commit[];
  outbox: readonly Out[];
  applied: Applied;
  parts: Parts;
  /** Gone when the process ends. */
  sent: number;
  acks: Readonly<Record<number, number>>;
  losses: number;
  isCaughtUp: boolean;
  isChecked: boolean;
  /** What a power cut leaves, if that is not everything. */
  safe: Device | undefined;
  isRelaxed: boolean;
  /** The writes that this device knew of: no part of the protocol. */
  seen: number;
  /** Nobody hears of it again. */
  isGone: boolean;
}
/** A local write as the application knows it: no part of the protocol. */
export interface Write {
  readonly keys: number;
  readonly deletes: number;
  readonly knew: number;
  readonly kind: Kind;
  readonly expiry: number;
  readonly isRefused: boolean /** It may take effect or not: its device is gone, or the log lost what was known of it. */;
  readonly isUnknown: boolean;
}
export interface State {
  log: Log;
  devices: Device[];
  writes: readonly Write[];
  left: Readonly<Record<string, number>>;
  wire: LogRecord | undefined;
  numbers: Readonly<Record<string, number>>;
  broken: string | undefined;
}

export interface Scenario {
  readonly name: string;
  readonly devices: number;
  readonly keys: number;
  /** What each device may write: `set 0`, `delete 0`, `clear`, `pair`, `long`, `expiring 0`, `strict 0`, `newer 0`; copies of files what the last one may. */
  readonly may: readonly (readonly string[])[];
  /** How often what happens, by name; `write`: local commits of all. */
  readonly times: Readonly<Record<string, number>>;
  /** Commits are captured later than they are made. */
  readonly isLazy?: boolean;
  readonly strict?: readonly number[];
  readonly skew?: readonly number[];
  /** Which collections a device knows, as bits; each key is a collection then. */
  readonly knows?: readonly number[];
  /** What the first device has written before, and all have read. */
  readonly begin?: readonly string[];
  /** Lost history does not interrupt connections. */
  readonly isUnnoticed?: boolean;
  /** Servers take a record for one that they have, although they lost it. */
  readonly isRemembered?: boolean;
}

const TICK = 8;
const MINUTE = 3;
export const LIMIT = 60;
const bit = (index: number): number => 1 << index;
const EMPTY: Row = { base: undefined, former: undefined, pending: undefined, isStale: false };
const UNKNOWN = -1;
export const content = ({ body, part, kind }: Pick<Out, 'body' | 'part' | 'kind'>): string =>
  `${kind}${part}/${body.n}/${body.txs.map(({ base, h, ops }) => `${base}.${h}.${ops.map(({ type, key, value, expiry, stamp }) => `${type[0]}${key}=${value}x${expiry}${stamp ? `s${stamp.h}.${stamp.device}.${stamp.n}` : ''}`).join()}`).join(';')}`;
const identity = (record: LogRecord): string => `${record.device}:${record.number}@${record.serial}`;
const chain = (before: number, text: string): number =>
  [...text].reduce((sum, char) => (Math.imul(sum, 31) + char.charCodeAt(0)) | 0, before);
const isForgotten = ({ isDead, h }: Stamp, time: number): boolean => isDead && h < (time - LIMIT) * TICK;
const isGreater = (a: Stamp, b: Stamp): boolean =>
  a.h !== b.h ? a.h > b.h : a.device !== b.device ? a.device > b.device : a.n !== b.n ? a.n > b.n : a.value > b.value;
/** The base as digests see it: values and their stamps. */
export const digestOf = ({ rows }: Pick<Device, 'rows'>): string =>
  rows
    .map(({ base }) =>
      base === undefined || base.stamp.isDead
        ? '-'
        : `${base.stamp.h}.${base.stamp.device}.${base.stamp.n}.${base.stamp.position}=${base.stamp.value}`,
    )
    .join();
/** The base as it decides about what comes. */
export const baseOf = ({ rows, time }: Device): string =>
  rows
    .map(({ base }) =>
      base === undefined || isForgotten(base.stamp, time)
        ? '-'
        : `${base.stamp.h}.${base.stamp.device}.${base.stamp.n}.${base.stamp.position}=${base.stamp.value}${base.stamp.isDead ? '' : `x${base.stamp.expiry}`}`,
    )
    .join();

export const newDevice = (id: number, keys: number, skew = 0, knows = -1): Device => ({
  id,
  formers: [],
  next: 1,
  hlc: 0,
  cursor: 0,
  at: '',
  time: 0,
  mode: 'none',
  knows,
  isAside: false,
  isDiverged: false,
  skew,
  rows: Array.from({ length: keys }, () => EMPTY),
  entries: Array.from({ length: keys }, () => undefined),
  feed: [],
  outbox: [],
  applied: {},
  parts: {},
  sent: 0,
  acks: {},
  losses: 0,
  isCaughtUp: false,
  isChecked: true,
  safe: undefined,
  isRelaxed: false,
  seen: 0,
  isGone: false,
});

/** One step of the world, on a copy of what it changes. */
export class Step {
  readonly state: State;
  readonly #scenario: Scenario;
  readonly #wrong: ReadonlySet<Mistake>;
  /** The device as it was before this step. */
  #before: Device | undefined;
  /** What readers see until all of a record is applied. */
  #shown: Map<number, Entry | undefined> | undefined;

  constructor(from: State, scenario: Scenario, wrong: ReadonlySet<Mistake>) {
    this.state = { ...from, devices: [...from.devices] };
    this.#scenario = scenario;
    this.#wrong = wrong;
  }

  #is(mistake: Mistake): boolean {
    return this.#wrong.has(mistake);
  }

  fail(why: string): void {
    this.state.broken ??= why;
  }

  device(index: number): Device {
    const from = this.state.devices[index] as Device;
    this.#before = from;
    return (this.state.devices[index] = { ...from, rows: [...from.rows], entries: [...from.entries] });
  }

  get log(): Log {
    return (this.state.log = { ...this.state.log });
  }

  use(what: string): void {
    this.state.left = { ...this.state.left, [what]: (this.state.left[what] ?? 0) - 1 };
  }

  #isStrict(key: number): boolean {
    return this.#scenario.strict?.includes(key) === true;
  }

  #isKnown(device: Device, key: number): boolean {
    return (device.knows & bit(key)) !== 0;
  }

  /** Entries follow the base. */
  #isMaterial(device: Device, key: number): boolean {
    return (
      this.#isKnown(device, key) && (device.mode === 'none' || this.#is('entries change before the end of the log'))
    );
  }

  #keeps(device: Device, key: number, expiry: number): boolean {
    return (
      this.#isStrict(key) ||
      (expiry !== 0 && !this.#is('values that expire are not kept')) ||
      !this.#isMaterial(device, key)
    );
  }

  /** What replication does to an entry; never behind what was shown before, nor over what the log has not seen. */
  #show(device: Device, key: number, to: Entry | undefined): void {
    if (
      device.feed.some(({ kind, ops }) => kind !== 'removal' && ops.some((op) => op.type === 'clear' || op.key === key))
    )
      this.fail(`device ${device.id}: a local write of key ${key} that was not captured is overwritten`);
    if (this.#shown === undefined) this.#checkOrder(device, key, device.entries[key], to);
    else if (!this.#shown.has(key)) this.#shown.set(key, device.entries[key]);
    device.entries[key] = to;
  }

  #checkOrder(device: Device, key: number, from: Entry | undefined, to: Entry | undefined): void {
    if (from !== undefined && from.write !== to?.write && from.expiry === 0 && this.state.left['forget'] !== 0) {
      const isBehind =
        to !== undefined
          ? ((this.state.writes[from.write]?.knew ?? 0) & bit(to.write)) !== 0
          : !this.state.writes.some(
              ({ deletes, keys, expiry }, write) =>
                ((deletes & bit(key)) !== 0 ||
                  ((keys & bit(key)) !== 0 && expiry !== 0 && expiry <= this.state.log.clock)) &&
                ((this.state.writes[from.write]?.knew ?? 0) & bit(write)) === 0,
            );
      if (isBehind) this.fail(`device ${device.id}: key ${key} goes back behind write ${from.write}`);
    }
  }

  #expose(device: Device, key: number, value: Entry | undefined): void {
    const row = device.rows[key] as Row;
    if (this.#isMaterial(device, key)) {
      device.rows[key] = { ...row, isStale: false };
      this.#show(device, key, value);
    } else device.rows[key] = { ...row, isStale: true };
  }

  // Local commits.

  write(index: number, what: string): void {
    const device = this.device(index);
    const [name, at] = what.split(' ');
    const write = this.state.writes.length;
    const value = 1 + (write % 2);
    const keys = at === undefined ? device.rows.map((_, key) => key) : [Number(at)];
    const there = keys.filter((key) => device.entries[key] !== undefined);
    const isDelete = name === 'delete' || name === 'clear';
    const expiry = name === 'expiring' ? this.state.log.clock + 4 : 0;
    let ops: Op[] = keys.map((key) => ({ type: 'put', key, value: isDelete ? 0 : value, expiry, write }));
    if (name === 'clear') ops = [{ type: 'clear', key: 0, value: 0, expiry: 0, write }];
    // A clear removes what is there when the log reaches it.
    const mask = (name === 'delete' ? there : keys).reduce((sum, key) => sum | bit(key), 0);
    this.state.writes = [
      ...this.state.writes,
      {
        keys: mask,
        deletes: isDelete ? mask : 0,
        knew: device.seen,
        kind: name === 'newer' ? 'newer' : 'merge',
        expiry,
        isRefused: false,
        isUnknown: false,
      },
    ];
    for (const key of keys) device.entries[key] = isDelete ? undefined : { value, expiry, write };
    device.feed = [
      ...device.feed,
      { kind: name === 'newer' || name === 'long' ? name : 'merge', base: device.cursor, ops, seen: device.seen },
    ];
    device.seen |= bit(write);
    // The application's commits are durable, and with them what was committed before.
    [device.safe, device.isRelaxed] = [undefined, false];
    if (this.#scenario.isLazy !== true) this.#capture(device);
  }

  capture(index: number): void {
    const device = this.device(index);
    this.#capture(device);
    [device.safe, device.isRelaxed] = [undefined, false];
  }

  #capture(device: Device): void {
    for (const kind of ['merge', 'newer', 'long', 'removal'] as const) {
      const commits = device.feed.filter((commit) => commit.kind === kind);
      if (commits.length > 0) this.#captureAll(device, kind, commits);
    }
    device.feed = [];
  }

  #captureAll(device: Device, kind: Commit['kind'], commits: readonly Commit[]): void {
    const n = this.#is('n is given when a record is sent') ? 0 : device.next;
    const txs: Tx[] = [];
    for (const { base, ops } of commits) {
      if (kind === 'removal' && !this.#is('removals by expiry are sent')) {
        for (const { key } of ops) this.#revive(device, key);
        continue;
      }
      if (
        this.#is('what a program does not know is not captured') &&
        ops.some(({ key }) => !this.#isKnown(device, key))
      )
        continue;
      const sent: Op[] = [];
      for (const op of ops) {
        const keys = op.type === 'clear' ? device.rows.map((_, key) => key) : [op.key];
        const there = keys.filter((key) => {
          const { pending, former, base: has } = device.rows[key] as Row;
          return (
            op.value !== 0 ||
            (pending === undefined
              ? has?.stamp.isDead === false || former?.stamp.isDead === false
              : pending.value !== 0)
          );
        });
        // What is sent again or put back may come behind a clear, which leaves nothing where there is nothing.
        const again =
          op.type === 'put' || this.#is('a clear says nothing of what is pending')
            ? []
            : there.filter((key) => {
                const { pending, former } = device.rows[key] as Row;
                return former !== undefined || (pending !== undefined && pending.n < n);
              });
        for (const key of there)
          device.rows[key] = {
            ...(device.rows[key] as Row),
            former: undefined,
            isStale: false,
            pending: { n, value: op.value, expiry: op.expiry },
          };
        if (there.length > 0) sent.push(op, ...again.map((key): Op => ({ ...op, type: 'put', key })));
      }
      if (sent.length === 0) continue;
      device.hlc = Math.max(device.hlc + 1, (this.state.log.clock + device.skew) * TICK);
      txs.push({ base, h: device.hlc, ops: sent });
    }
    if (txs.length === 0) return;
    const parts = kind === 'long' ? 2 : 1;
    for (let part = 0; part < parts; part++)
      device.outbox = [
        ...device.outbox,
        {
          number: device.next++,
          kind: kind === 'newer' ? kind : 'merge',
          body: { n, txs },
          part,
          parts,
          isUnbased: false,
          expect: -1,
        },
      ];
  }

  /** The engine has removed an entry by the device's clock. */
  removeExpired(index: number): void {
    const device = this.device(index);
    const keys = expired(this.state, device);
    for (const key of keys) device.entries[key] = undefined;
    device.feed = [
      ...device.feed,
      {
        kind: 'removal',
        base: device.cursor,
        ops: keys.map((key) => ({ type: 'put', key, value: 0, expiry: 0, write: 0 })),
        seen: device.seen,
      },
    ];
    if (this.#scenario.isLazy !== true) this.#capture(device);
  }

  #revive(device: Device, key: number): void {
    const row = device.rows[key] as Row;
    const now = this.state.log.clock + device.skew;
    if (row.pending !== undefined && row.pending.expiry > now)
      device.rows[key] = { ...row, pending: { ...row.pending, value: UNKNOWN } };
    else if (
      row.pending === undefined &&
      row.base !== undefined &&
      row.base.stamp.expiry > now &&
      !row.base.stamp.isDead &&
      !row.isStale
    )
      device.entries[key] = row.base.isKept ? row.base.stamp : undefined;
  }

  /** A device's clock that was ahead is right again: what the engine removed comes back. */
  rightClock(index: number): void {
    const device = this.device(index);
    device.skew = 0;
    for (const [key, { pending, base, isStale }] of device.rows.entries())
      if (
        device.entries[key] === undefined &&
        pending === undefined &&
        !isStale &&
        base?.isKept === true &&
        !base.stamp.isDead
      )
        device.entries[key] = base.stamp;
  }

  /** Offers a strict transaction, which reads and writes its keys: the device has read the log and has nothing pending. */
  strict(index: number, what: string): void {
    const device = this.device(index);
    const key = Number(what.split(' ')[1]);
    const write = this.state.writes.length;
    device.hlc = Math.max(device.hlc + 1, (this.state.log.clock + device.skew) * TICK);
    const number = device.next++;
    this.state.writes = [
      ...this.state.writes,
      { keys: bit(key), deletes: 0, knew: device.seen, kind: 'strict', expiry: 0, isRefused: false, isUnknown: false },
    ];
    device.outbox = [
      {
        number,
        kind: 'strict',
        body: {
          n: number,
          txs: [
            {
              base: device.cursor,
              h: device.hlc,
              ops: [{ type: 'put', key, value: 1 + (write % 2), expiry: 0, write }],
            },
          ],
        },
        part: 0,
        parts: 1,
        isUnbased: false,
        expect: device.cursor,
      },
    ];
    [device.safe, device.isRelaxed] = [undefined, false];
  }

  check(index: number): void {
    const device = this.device(index);
    const number = device.next++;
    device.outbox = [
      {
        number,
        kind: 'check',
        body: { n: number, txs: [{ base: device.cursor, h: device.hlc, ops: [] }], digest: digestOf(device) },
        part: 0,
        parts: 1,
        isUnbased: false,
        expect: device.cursor,
      },
    ];
    [device.safe, device.isRelaxed] = [undefined, false];
  }

  // Sending.

  #record(device: Device, out: Out): LogRecord {
    let { number, body } = out;
    const last = device.applied[device.id]?.[0] ?? 0;
    if (this.#is('numbers are given when a record is sent')) number = last + 1 + device.outbox.indexOf(out);
    const before = Math.max(
      last,
      ...device.outbox.filter((other) => other.number < number).map((other) => other.number),
      0,
    );
    if (this.#is('n is given when a record is sent')) body = { ...body, n: number };
    return { ...out, number, body, device: device.id, back: number - before, position: 0, time: 0, serial: 0 };
  }

  /** Sends the next record; its reply may be lost, or the record stays on its way. */
  send(index: number, how: 'sent' | 'reply lost' | 'on its way'): void {
    const device = this.device(index);
    const out = nextOut(device) as Out;
    if (device.isRelaxed && !this.#is('what a power cut takes back is sent'))
      [device.safe, device.isRelaxed] = [undefined, false];
    const record = this.#record(device, out);
    if (how === 'on its way') {
      this.state.wire = record;
      return;
    }
    const position = this.#append(record);
    if (position === undefined) {
      // Something else followed: the record cannot get into the log any more.
      if (device.cursor !== out.expect) this.#withdraw(device, out);
      return;
    }
    if (how === 'reply lost') return;
    device.sent = out.number;
    device.acks = { ...device.acks, [out.number]: position };
    if (this.#is('acknowledged records are confirmed')) this.#confirm(device, out.number, out.parts, out.part, false);
  }

  #withdraw(device: Device, out: Out): void {
    device.outbox = device.outbox.filter((other) => other !== out);
    if (out.kind === 'strict') this.#ends(out, 'isRefused');
  }

  /** How a strict transaction ends that is not in the log where it should be. */
  #ends(out: Out, how: 'isRefused' | 'isUnknown'): void {
    const { write } = out.body.txs[0]?.ops[0] as Op;
    this.state.writes = this.state.writes.map((each, at) => (at === write ? { ...each, [how]: true } : each));
  }

  #append(given: LogRecord, isForced = false): number | undefined {
    const log = this.log;
    const key = `${given.device}:${given.number}`;
    const known = log.keys[key];
    if (known !== undefined && !isForced) return known;
    if (given.expect >= 0 && given.expect !== log.end && !isForced) return undefined;
    const record = { ...given, position: log.end + 1, time: log.clock, serial: log.serial++ };
    log.end++;
    log.records = [...log.records, record];
    log.all = [...log.all, record];
    log.keys = { ...log.keys, [key]: known ?? record.position };
    return record.position;
  }

  /** A record that was on its way arrives, whatever was sent since; the servers have forgotten that they had it. */
  deliver(): void {
    this.#append(this.state.wire as LogRecord, true);
    this.state.wire = undefined;
  }

  /** Acknowledged records are not where they should be, and no loss was noticed. */
  sendAgain(index: number, isLong: boolean): void {
    if (this.#is('a record that is lost at the end is not sent again')) return;
    const device = this.device(index);
    const last = device.outbox.filter(({ number }) => number <= device.sent).at(-1) as Out;
    if (isLong && last.expect < 0) this.#renumber(device, last.number + last.parts - 1 - last.part);
    [device.sent, device.acks] = [0, {}];
  }

  // Reading.

  /** One step of reading: the log's history is checked, a snapshot is loaded, a record applied, or the end noticed. */
  read(index: number): void {
    const device = this.device(index);
    const { log } = this.state;
    if (!this.#is('applying does not capture first')) this.#capture(device);
    this.#relax(device);
    if (!device.isChecked) {
      device.isChecked = true;
      device.losses = log.losses;
      if (device.cursor === 0) {
        if (log.snapshot !== undefined) this.#load(device, log.snapshot);
        return;
      }
      if (device.cursor <= log.purged) return this.#load(device, log.snapshot as Snapshot);
      const there = log.records.find(({ position }) => position === device.cursor);
      if (there === undefined || identity(there) !== device.at) {
        this.#rejoin(device, 'lost');
        if (log.snapshot !== undefined) this.#load(device, log.snapshot);
        return;
      }
    }
    if (device.cursor < log.purged) return this.#load(device, log.snapshot as Snapshot);
    const record = log.records.find(({ position }) => position > device.cursor);
    if (record !== undefined) {
      this.apply(device, record);
      if (device.mode !== 'none' && this.#is('entries change before the end of the log')) this.#conclude(device);
      return;
    }
    if (device.mode !== 'none') this.#conclude(device);
    device.isCaughtUp = true;
    const [oldest] = device.outbox;
    const lost = lostOuts(device).at(-1);
    if (oldest === undefined) device.acks = {};
    else if (lost !== undefined && !this.#is('a record that is lost at the end is not sent again'))
      this.#renumber(device, lost.number + lost.parts - 1 - lost.part);
    else if (oldest.expect >= 0 && device.cursor !== oldest.expect && !this.#isInLog(device, oldest))
      this.#withdraw(device, oldest);
  }

  #isInLog(device: Device, { number }: Out): boolean {
    return this.state.log.records.some(
      (record) => record.device === device.id && record.number === number && record.position > device.cursor,
    );
  }

  /** Before a commit that a power cut may take back. */
  #relax(device: Device): void {
    if ((this.#scenario.times['cut'] ?? 0) === 0) return;
    const before = this.#before as Device;
    device.safe ??= before;
    if (device.outbox.length > before.outbox.length) device.isRelaxed = true;
  }

  /** Tests use it for a device of their own: the base that the log makes. */
  apply(device: Device, record: LogRecord): void {
    const previous = device.cursor;
    const known = device.applied[record.device] ?? [0, 0];
    const text = content(record);
    [device.cursor, device.at] = [record.position, identity(record)];
    if (record.number <= known[0] && !this.#is('records are applied again')) return this.#advance(device, record.time);
    if (record.number - record.back > known[0] && this.#is('readers wait for records that are missing')) {
      device.cursor = previous;
      return;
    }
    const name = `${record.device}:${record.number}`;
    const other = this.state.numbers[name];
    const sum = chain(0, text);
    if (other !== undefined && other !== sum) this.fail(`number ${name} is that of two records`);
    if (other === undefined) this.state.numbers = { ...this.state.numbers, [name]: sum };
    device.applied = { ...device.applied, [record.device]: [record.number, chain(known[1], text)] };
    const isOwn = record.device === device.id || device.formers.some(([id]) => id === record.device);
    const found = this.#is('numbers are given when a record is sent')
      ? device.outbox[record.number - known[0] - 1]
      : device.outbox.find(({ number }) => number === record.number);
    const own =
      isOwn &&
      found !== undefined &&
      (this.#is('the number tells whose a record is') ||
        content(
          this.#is('n is given when a record is sent')
            ? { ...found, body: { ...found.body, n: record.number } }
            : found,
        ) === text)
        ? found
        : undefined;
    if (own === undefined && record.device === device.id && !this.#is('a copy keeps its id'))
      this.#takeId(device, known);
    const isInPlace =
      (record.kind !== 'strict' && record.kind !== 'check') || record.body.txs.every(({ base }) => base === previous);
    if (record.kind === 'check' && own === undefined && isInPlace && !device.isAside && device.mode === 'none') {
      device.isDiverged = record.body.digest !== digestOf(device);
      if (device.isDiverged) this.fail(`device ${device.id} does not agree with the check at ${record.position}`);
    }
    const isNewer = record.kind === 'newer' && (device.knows & NEWER) === 0;
    if (!isNewer || this.#is("a record of a newer program moves the log's time"))
      this.#advance(
        device,
        this.#is('an own clock tells what is over')
          ? Math.max(record.time, this.state.log.clock + device.skew)
          : record.time,
      );
    const isWhole = this.#join(device, record);
    // So no snapshot confirms what had no effect.
    if (isWhole === 'cut' && !this.#is('a snapshot confirms parts that had no effect'))
      device.applied = { ...device.applied, [record.device]: [record.number, chain(known[1], `cut ${text}`)] };
    if (isNewer) device.isAside = true;
    else if (isWhole !== 'more') {
      if (!isInPlace && !this.#is('strict records count wherever they are')) {
        if (own !== undefined) this.#withdraw(device, own);
      } else if (isWhole !== 'cut') this.#fold(device, record, own !== undefined);
    }
    if (own !== undefined)
      this.#confirm(
        device,
        own.number,
        record.parts,
        record.part,
        isWhole === 'cut' && !this.#is('the last part confirms all'),
      );
  }

  #join(device: Device, record: LogRecord): 'whole' | 'cut' | 'more' {
    const { device: from, number, part, parts } = record;
    if (parts === 1 || this.#is('parts take effect one by one')) return 'whole';
    const at = (index: number): string => `${from}:${number - part + index}`;
    device.parts = { ...device.parts, [at(part)]: device.time };
    if (part < parts - 1) return 'more';
    const isWhole = Array.from({ length: parts }, (_, index) => device.parts[at(index)]).every(
      (time) => time !== undefined,
    );
    device.parts = Object.fromEntries(
      Object.entries(device.parts).filter(
        ([key]) => !Array.from({ length: parts }, (_, index) => at(index)).includes(key),
      ),
    );
    return isWhole ? 'whole' : 'cut';
  }

  #advance(device: Device, time: number): void {
    if (time <= device.time) return;
    device.time = time;
    if (!this.#is('parts wait for ever'))
      device.parts = Object.fromEntries(Object.entries(device.parts).filter(([, came]) => came >= time - LIMIT));
    for (const [key, row] of device.rows.entries()) {
      const { base } = row;
      if (base === undefined || base.stamp.isDead || base.stamp.expiry === 0 || base.stamp.expiry > time) continue;
      if (base.stamp.expiry > this.state.log.clock)
        this.fail(`device ${device.id}: key ${key} is over before its time`);
      device.rows[key] = { ...row, base: { stamp: { ...base.stamp, isDead: true, value: 0 }, isKept: false } };
      if (row.pending === undefined) this.#expose(device, key, undefined);
    }
  }

  #fold(device: Device, record: LogRecord, isMine: boolean): void {
    const {
      kind,
      body: { n, txs },
      parts,
      part,
      isUnbased,
    } = record;
    const touched: number[] = [];
    const shown = (this.#shown = new Map<number, Entry | undefined>());
    for (const { base, h, ops } of txs) {
      for (const op of parts > 1 && this.#is('parts take effect one by one') ? ops.slice(part, part + 1) : ops) {
        this.#note(device, op.write);
        if (op.stamp !== undefined) this.#confirmStrict(device, op.stamp);
        for (const key of op.type === 'clear' ? device.rows.keys() : [op.key]) {
          const row = device.rows[key] as Row;
          if (isMine && (op.type === 'put' || row.pending?.n === n)) touched.push(key);
          if (op.type === 'clear' && (row.base === undefined || row.base.stamp.isDead)) continue;
          if (this.#isStrict(key) !== (kind === 'strict') && kind !== 'repair') continue;
          const limited = Math.min(op.stamp?.h ?? h, (device.time + MINUTE) * TICK + TICK - 1);
          const stamp = { h: limited, device: op.stamp?.device ?? record.device, n: op.stamp?.n ?? n };
          this.#decide(
            device,
            key,
            op,
            {
              ...stamp,
              base: isUnbased && !this.#is('what is pending keeps its base') ? 0 : base,
              position: record.position,
              kind,
            },
            isMine,
          );
        }
      }
    }
    for (const key of touched) this.#settle(device, key, n);
    this.#shown = undefined;
    for (const [key, from] of shown) this.#checkOrder(device, key, from, device.entries[key]);
  }

  #note(device: Device, write: number): void {
    device.seen |= bit(write) | (this.state.writes[write]?.knew ?? 0);
  }

  #decide(
    device: Device,
    key: number,
    op: Op,
    write: {
      readonly h: number;
      readonly device: number;
      readonly n: number;
      readonly base: number;
      readonly position: number;
      readonly kind: Kind;
    },
    isMine: boolean,
  ): void {
    const row = device.rows[key] as Row;
    const current = (row.base ?? (this.#is('what is read again meets the former base') ? row.former : undefined))
      ?.stamp;
    const time = this.#is('tombstones are forgotten by an own clock')
      ? this.state.log.clock + device.skew
      : device.time;
    let h: number | undefined;
    if (current === undefined || isForgotten(current, time)) ({ h } = write);
    else if (write.kind === 'strict') h = Math.max(write.h, current.h + 1);
    else if (
      write.kind !== 'repair' &&
      current.device === write.device &&
      !this.#is('a record that is sent again counts as newer')
    ) {
      const isSame =
        write.n === current.n &&
        !this.#is('a record that comes again is raised above itself') &&
        (write.position !== current.position ||
          !this.#is('only the first write to a key keeps its clock when its record comes again'));
      if (write.n >= current.n) h = Math.max(write.h, current.h + (isSame ? 0 : 1));
    } else if (
      write.kind !== 'repair' &&
      !this.#is('clocks decide about what was known') &&
      (current.position <= write.base || current.device === write.device)
    )
      h = Math.max(write.h, current.h + 1);
    else if (
      write.h !== current.h
        ? write.h > current.h
        : write.device !== current.device
          ? write.device > current.device
          : write.n !== current.n
            ? write.n > current.n
            : op.value > current.value || (op.value === current.value && write.kind === 'repair')
    )
      ({ h } = write);
    if (h === undefined) return;
    if (!this.#is('clocks do not learn')) device.hlc = Math.max(device.hlc, h);
    const isKnown =
      current !== undefined &&
      write.kind === 'merge' &&
      write.device !== current.device &&
      current.position <= write.base &&
      !isForgotten(current, time);
    if (isKnown && current.write !== op.write && ((this.state.writes[op.write]?.knew ?? 0) & bit(current.write)) === 0)
      this.fail(`write ${op.write} wins because it knew write ${current.write}, which it did not`);
    const clock = this.#is('an own clock tells what is over') ? this.state.log.clock + device.skew : device.time;
    const isOver = op.value !== 0 && op.expiry !== 0 && op.expiry <= clock;
    const isDead = op.value === 0 || isOver;
    const stamp = {
      h,
      device: write.device,
      n: write.n,
      position: write.position,
      isDead,
      value: isDead ? 0 : op.value,
      expiry: isDead ? 0 : op.expiry,
      write: op.write,
    };
    if (op.type === 'clear' && this.#is('a clear leaves no tombstones')) device.rows[key] = { ...row, base: undefined };
    else {
      const isCovered = row.pending !== undefined;
      device.rows[key] = {
        ...row,
        base: {
          stamp,
          isKept:
            !isDead && ((isCovered && (!isMine || write.kind === 'repair')) || this.#keeps(device, key, stamp.expiry)),
        },
      };
    }
    if (row.pending === undefined || this.#is('what arrives replaces what is pending')) {
      if (row.pending !== undefined && !isMine)
        this.fail(`device ${device.id}: a pending write of key ${key} is overwritten`);
      this.#expose(device, key, isDead ? undefined : stamp);
    }
  }

  /** The log has the record `n` of this device: if the entry is still its write, it is the base's again. */
  #settle(device: Device, key: number, n: number): void {
    const row = device.rows[key] as Row;
    const { pending, base } = row;
    if (pending?.n !== n && !this.#is('any confirmed record ends what is pending')) return;
    if (pending === undefined || (base === undefined && pending.value !== 0)) return;
    device.rows[key] = { ...row, pending: undefined };
    if (base === undefined) return;
    const { stamp } = base;
    const isSame = stamp.isDead
      ? pending.value === 0
      : pending.value === stamp.value && pending.expiry === stamp.expiry;
    if (!this.#isMaterial(device, key)) {
      device.rows[key] = { ...row, pending: undefined, isStale: !isSame };
      return;
    }
    if (!isSame && (stamp.isDead || base.isKept)) this.#show(device, key, stamp.isDead ? undefined : stamp);
    else if (device.entries[key] !== undefined && !stamp.isDead)
      device.entries[key] = { ...device.entries[key], write: stamp.write };
    device.rows[key] = {
      ...row,
      pending: undefined,
      base: { stamp, isKept: base.isKept && this.#keeps(device, key, stamp.expiry) },
    };
  }

  #confirm(device: Device, number: number, parts: number, part: number, isCut: boolean): void {
    const first = number - part;
    if (this.#is('parts leave the outbox one by one'))
      device.outbox = device.outbox.filter((out) => out.number !== number);
    else if (part === parts - 1 && !isCut)
      device.outbox = device.outbox.filter((out) => out.number < first || out.number > number);
    const oldest = device.outbox[0]?.number ?? number;
    const last = isCut ? number : first - 1;
    if (oldest <= last) this.#renumber(device, last);
  }

  /** What the log lost of a strict transaction another device has put back. */
  #confirmStrict(device: Device, { device: by, n }: Pick<Stamp, 'device' | 'n'>): void {
    if (
      this.#is('a strict transaction that was put back counts as refused') ||
      (by !== device.id && device.formers.every(([id]) => id !== by))
    )
      return;
    device.outbox = device.outbox.filter(({ kind, body }) => kind !== 'strict' || body.n !== n);
  }

  /** Records up to a number are lost: they go out again under other numbers, behind all others. */
  #renumber(device: Device, last: number): void {
    [device.sent, device.acks] = [0, {}];
    if (this.#is('a lost record keeps its number') || this.#is('numbers are given when a record is sent')) return;
    const lost = device.outbox.filter(({ number }) => number <= last);
    const again = lost.map((out) => ({ ...out, number: device.next++ }));
    device.outbox = [...device.outbox.filter(({ number }) => number > last), ...again];
  }

  #takeId(device: Device, last: readonly [number, number]): void {
    device.formers = [...device.formers, [device.id, ...last]];
    device.id = this.log.nextId++;
    [device.sent, device.acks] = [0, {}];
  }

  // What the log has lost, and what it has purged.

  #rejoin(device: Device, kind: 'lost' | 'reread'): void {
    const last = device.applied[device.id] ?? [0, 0];
    if (!(kind === 'lost' && this.#is('lost history leaves the id'))) this.#takeId(device, last);
    if (kind === 'lost') for (const out of device.outbox) if (out.kind === 'strict') this.#ends(out, 'isUnknown');
    if (kind === 'lost')
      device.outbox = device.outbox.filter(({ expect }) => expect < 0).map((out) => ({ ...out, isUnbased: true }));
    if (kind === 'reread') device.outbox = device.outbox.filter(({ kind: what }) => what !== 'check');
    if (!this.#is('bases survive lost history')) {
      const isFirst = device.mode === 'none' || this.#is('a second loss takes the former base');
      // Of a history that was not read to its end only what is the entry counts: an own write that it had confirmed.
      const isEntry = ({ base, pending, isStale }: Row): boolean =>
        base !== undefined && pending === undefined && !isStale;
      device.rows = device.rows.map((row) => ({
        ...row,
        base: undefined,
        former: isFirst || isEntry(row) ? row.base : row.former,
      }));
    }
    [device.applied, device.parts, device.isAside, device.cursor, device.at, device.isCaughtUp, device.isDiverged] = [
      {},
      {},
      false,
      0,
      '',
      false,
      false,
    ];
    if (!this.#is("the log's time survives a reread")) device.time = 0;
    [device.sent, device.acks] = [0, {}];
    device.mode = kind === 'lost' || device.mode === 'lost' ? 'lost' : 'reread';
    if (this.#is('lost history is read like purged history')) device.mode = 'reread';
  }

  /** Another device may put a value back behind a clear, which finds nothing then: the record names the key. */
  #name(device: Device, key: number, n: number, repair: Op[]): void {
    // A repair that is still on its way names it.
    if (
      device.outbox.some(
        ({ kind, body }) =>
          kind === 'repair' && body.n === n && body.txs.some(({ ops }) => ops.some((op) => op.key === key)),
      )
    )
      return;
    const clear = device.outbox
      .filter(({ body }) => body.n === n)
      .flatMap(({ body }) => body.txs)
      .flatMap(({ h, ops }) => ops.map((op) => ({ ...op, h })))
      .filter((op) => op.type === 'clear' || op.key === key)
      .at(-1);
    if (clear === undefined) this.fail(`nothing in the outbox has the delete of key ${key}`);
    if (clear?.type !== 'clear' || this.#is('a clear that is pending stays as it was')) return;
    const { write } = clear;
    const [withOwn, withRecords] = [
      this.#is("what a clear removed is put into a repair with the device's clock"),
      this.#is('what a clear removed is put into a repair'),
    ];
    if (withOwn || withRecords)
      repair.push({
        type: 'put',
        key,
        value: 0,
        expiry: 0,
        write,
        stamp: {
          h: withOwn ? device.hlc : clear.h,
          device: device.id,
          n,
          position: 0,
          isDead: true,
          value: 0,
          expiry: 0,
          write,
        },
      });
    else {
      const more = ({ base, h, ops }: Tx): Tx => ({
        base,
        h,
        ops: ops.flatMap((op) =>
          op.type === 'clear' && op.write === write ? [op, { ...op, type: 'put' as const, key }] : [op],
        ),
      });
      device.outbox = device.outbox.map((out) =>
        out.kind !== 'repair' && out.body.n === n
          ? { ...out, body: { ...out.body, txs: out.body.txs.map(more) } }
          : out,
      );
    }
  }

  /** The log was read to its end once more. */
  #conclude(device: Device): void {
    const { mode } = device;
    device.mode = 'none';
    const ops: Op[] = [];
    for (const [key, row] of device.rows.entries()) {
      const { base, former, pending, isStale } = row;
      if (former === undefined && !isStale) continue;
      device.rows[key] = { ...row, former: undefined };
      if (pending !== undefined) {
        if (mode === 'lost' && pending.value === 0 && former?.stamp.isDead === false)
          this.#name(device, key, pending.n, ops);
        continue;
      }
      if (mode === 'lost' && former !== undefined && (base === undefined || isGreater(former.stamp, base.stamp))) {
        const { stamp } = former;
        const entry =
          this.#isKnown(device, key) || !this.#is('entries that a program does not know cannot be read')
            ? device.entries[key]
            : undefined;
        const value = stamp.isDead ? 0 : former.isKept ? stamp.value : (entry?.value ?? 0);
        if (value !== 0 || stamp.isDead) {
          if (value !== stamp.value) this.fail(`device ${device.id} puts back key ${key} with another value`);
          ops.push({ type: 'put', key, value, expiry: stamp.expiry, write: stamp.write, stamp });
          device.rows[key] = {
            base,
            former: undefined,
            isStale: false,
            pending: { n: device.next, value: stamp.value, expiry: stamp.expiry },
          };
          if (stamp.isDead || former.isKept) this.#show(device, key, stamp.isDead ? undefined : stamp);
          continue;
        }
      }
      if (!this.#isKnown(device, key)) {
        device.rows[key] = { ...row, former: undefined, isStale: true };
        continue;
      }
      this.#show(device, key, base === undefined || base.stamp.isDead ? undefined : base.stamp);
      device.rows[key] = {
        base: base && { stamp: base.stamp, isKept: base.isKept && this.#keeps(device, key, base.stamp.expiry) },
        former: undefined,
        pending: undefined,
        isStale: false,
      };
    }
    if (ops.length === 0) return;
    const isNew = this.#is('repairs get stamps of their own');
    if (isNew) device.hlc = Math.max(device.hlc + 1, (this.state.log.clock + device.skew) * TICK);
    const sent = isNew ? ops.map(({ type, key, value, expiry, write }) => ({ type, key, value, expiry, write })) : ops;
    device.outbox = [
      ...device.outbox,
      {
        number: device.next,
        kind: 'repair',
        body: { n: device.next++, txs: [{ base: 0, h: device.hlc, ops: sent }] },
        part: 0,
        parts: 1,
        isUnbased: false,
        expect: -1,
      },
    ];
  }

  /** The newest snapshot becomes the base. */
  #load(device: Device, snapshot: Snapshot): void {
    const { log } = this.state;
    const isThere = isIn(log, snapshot);
    const { previous } = snapshot;
    const isOld = this.#is('the newest snapshot is the base whatever the log lost');
    const from = isThere || isOld ? snapshot : previous !== undefined && isIn(log, previous) ? previous : undefined;
    const isRight = device.cursor === 0 && (isThere || device.mode === 'lost');
    const own = device.applied[device.id] ?? [0, 0];
    const knownId = device.id;
    if (!isRight) this.#rejoin(device, isThere ? 'reread' : 'lost');
    if (!isThere) {
      // What the newest snapshot has and the log does not is put back at the log's end.
      for (const [key, base] of snapshot.rows.entries()) {
        const row = device.rows[key] as Row;
        if (
          base !== undefined &&
          (row.former === undefined || isGreater(base.stamp, row.former.stamp)) &&
          !this.#is('what the newest snapshot has beyond is not put back')
        )
          device.rows[key] = { ...row, former: base };
      }
    }
    for (const [key, base] of from?.rows.entries() ?? []) {
      const row = device.rows[key] as Row;
      if (base === undefined) continue;
      device.rows[key] = {
        ...row,
        base: {
          stamp: base.stamp,
          isKept: base.isKept && (row.pending !== undefined || this.#keeps(device, key, base.stamp.expiry)),
        },
      };
      this.#confirmStrict(device, base.stamp);
      if (row.pending === undefined) this.#expose(device, key, base.stamp.isDead ? undefined : base.stamp);
    }
    const mine = isRight ? own : ([0, 0] as const);
    [device.applied, device.parts, device.time, device.seen] = [
      from?.applied ?? {},
      from?.parts ?? {},
      from?.time ?? 0,
      device.seen | (from?.seen ?? 0),
    ];
    device.cursor = from?.position ?? log.purged;
    device.at = from?.at ?? '';
    for (const [id, ...last] of [[device.id, ...mine] as const, ...device.formers]) {
      const there = from?.applied[id];
      if (there === undefined) continue;
      if (!this.#confirmAll(device, last, there) && id === device.id && knownId === id) this.#takeId(device, own);
    }
    device.isCaughtUp = false;
    [device.sent, device.acks] = [0, {}];
  }

  /** What came into the log before the snapshot leaves the outbox, if it is this device's. */
  #confirmAll(device: Device, known: readonly [number, number], last: readonly [number, number]): boolean {
    if (last[0] === known[0] && last[1] === known[1]) return true;
    const outs = device.outbox.filter(({ number }) => number > known[0] && number <= last[0]);
    const sum = outs.reduce((before, out) => chain(before, content(out)), known[1]);
    if (
      !this.#is('a snapshot confirms by number') &&
      ((outs.at(-1)?.number ?? known[0]) !== last[0] || sum !== last[1])
    )
      return false;
    for (const out of outs) {
      if (out.part < out.parts - 1) continue;
      device.outbox = device.outbox.filter(({ number }) => number > out.number || number <= out.number - out.parts);
      for (const { ops } of out.body.txs)
        for (const op of ops)
          for (const key of op.type === 'clear' ? device.rows.keys() : [op.key]) this.#settle(device, key, out.body.n);
    }
    return true;
  }

  /** What a snapshot would have; undefined: not now. */
  snapshot(device: Device): Snapshot | undefined {
    const isHasty = this.#is('a snapshot does not wait for what is pending');
    if (
      device.cursor === 0 ||
      device.mode !== 'none' ||
      ((device.outbox.length > 0 || device.feed.length > 0) && !isHasty)
    )
      return undefined;
    if ((device.isAside || device.isDiverged) && !this.#is('a device that set records aside compacts'))
      return undefined;
    const rows: (Base | undefined)[] = [];
    for (const [key, { base, isStale }] of device.rows.entries()) {
      const isKnown = this.#isKnown(device, key);
      if (
        base === undefined ||
        (base.stamp.isDead && (isForgotten(base.stamp, device.time - 7) || this.#is('snapshots have no tombstones'))) ||
        (!isKnown && this.#is('a snapshot lacks what the program does not know'))
      ) {
        rows.push(undefined);
        continue;
      }
      const entry =
        isKnown || !this.#is('entries that a program does not know cannot be read') ? device.entries[key] : undefined;
      const value = base.stamp.isDead || isStale || base.isKept ? base.stamp.value : entry?.value;
      if (value !== base.stamp.value && !isHasty) return undefined;
      rows.push({
        stamp: {
          ...base.stamp,
          value: value ?? 0,
          write: base.isKept || base.stamp.isDead ? base.stamp.write : (entry?.write ?? base.stamp.write),
        },
        isKept: true,
      });
    }
    const { log } = this.state;
    const newest = log.snapshot;
    const before = [newest, newest?.previous].find((each) => each !== undefined && isIn(log, each));
    const purged = Math.max((before?.position ?? 0) - 1, log.purged, 0);
    return {
      position: device.cursor,
      at: device.at,
      time: device.time,
      rows,
      applied: device.applied,
      parts: device.parts,
      seen: device.seen,
      purged,
      digest: baseOf(device),
      previous: before && { ...before, previous: undefined },
    };
  }

  compact(index: number): void {
    const snapshot = this.snapshot(this.device(index)) as Snapshot;
    const log = this.log;
    const right = replay(
      log.all.filter(({ position }) => position <= snapshot.position),
      this.state,
      this.#scenario,
      this.#wrong,
    );
    const has = snapshot.rows.map((base) => (base === undefined || base.stamp.isDead ? '-' : base.stamp.value)).join();
    if (has !== right.rows.map(({ base }) => (base === undefined || base.stamp.isDead ? '-' : base.stamp.value)).join())
      this.fail(`the snapshot of device ${(this.state.devices[index] as Device).id} is not what the log has: ${has}`);
    log.purged = this.#is('a snapshot purges up to itself') ? snapshot.position : snapshot.purged;
    log.snapshot = snapshot;
    log.records = log.records.filter(({ position }) => position > log.purged);
  }

  // What happens to devices and servers.

  loseTail(count: number): void {
    const log = this.log;
    const kept = log.records.slice(0, log.records.length - count);
    const lost = log.records.slice(-count);
    log.records = kept;
    log.end = kept.at(-1)?.position ?? log.purged;
    if (this.#scenario.isRemembered !== true)
      log.keys = Object.fromEntries(Object.entries(log.keys).filter(([, position]) => position <= log.end));
    // Where nothing is left, what was purged is lost, too.
    log.all = kept.length === 0 ? [] : log.all.filter(({ position }) => position <= log.end);
    log.losses++;
    const names = new Set(lost.map(({ device, number }) => `${device}:${number}`));
    this.state.numbers = Object.fromEntries(Object.entries(this.state.numbers).filter(([name]) => !names.has(name)));
    if (this.#scenario.isUnnoticed !== true) for (const index of this.state.devices.keys()) this.connect(index);
  }

  loseRecord(record: LogRecord): void {
    const log = this.log;
    log.records = log.records.filter((other) => other !== record);
    log.all = log.all.filter((other) => other !== record);
  }

  connect(index: number): void {
    const device = this.device(index);
    [device.isChecked, device.isCaughtUp, device.sent, device.acks] = [false, false, 0, {}];
  }

  cut(index: number): void {
    const from = this.state.devices[index] as Device;
    this.state.devices[index] = { ...(from.safe ?? from), safe: undefined, isRelaxed: false };
    this.connect(index);
  }

  /** What the device has not sent nobody waits for. */
  leave(index: number): void {
    const device = this.device(index);
    device.isGone = true;
    const writes = new Set(
      [...device.feed, ...device.outbox.flatMap(({ body }) => body.txs)].flatMap(({ ops }) =>
        ops.map(({ write }) => write),
      ),
    );
    this.state.writes = this.state.writes.map((each, at) => (writes.has(at) ? { ...each, isUnknown: true } : each));
  }

  copy(index: number): void {
    const at = this.state.devices.length;
    this.state.devices.push({ ...(this.state.devices[index] as Device), safe: undefined, isRelaxed: false });
    this.connect(at);
  }

  /** Another program leads on the file. */
  program(index: number, knows: number): void {
    const device = this.device(index);
    this.#capture(device);
    device.knows = knows;
    this.connect(index);
    if (device.isAside && (knows & NEWER) !== 0) this.#rejoin(device, 'reread');
    if (device.mode !== 'none') return;
    for (const [key, row] of device.rows.entries()) {
      if (!row.isStale || !this.#isKnown(device, key) || row.pending !== undefined) continue;
      this.#show(device, key, row.base === undefined || row.base.stamp.isDead ? undefined : row.base.stamp);
      device.rows[key] = {
        ...row,
        isStale: false,
        base: row.base && { stamp: row.base.stamp, isKept: this.#keeps(device, key, row.base.stamp.expiry) },
      };
    }
  }
}

const isIn = ({ records }: Log, { position, at }: Snapshot): boolean =>
  records.some((record) => record.position === position && identity(record) === at);
/** The program understands records of newer ones. */
export const NEWER = 1 << 20;
export const expired = ({ log }: State, { entries, skew }: Device): number[] =>
  [...entries.keys()].filter(
    (key) => (entries[key]?.expiry ?? 0) !== 0 && (entries[key] as Entry).expiry <= log.clock + skew,
  );
export const nextOut = ({ outbox, sent }: Device): Out | undefined => outbox.find(({ number }) => number > sent);

/** Acknowledged records that the log, read to its end, does not have; parts that came back wait for the others. */
export const lostOuts = ({ outbox, acks, cursor, id, parts }: Device): Out[] =>
  outbox.filter(
    ({ number, expect }) =>
      expect < 0 && (acks[number] ?? Infinity) <= cursor && parts[`${id}:${number}`] === undefined,
  );

/** What the rules make of records, wrong ones, too: those have to be wrong by what they do. */
export function replay(
  records: readonly LogRecord[],
  state: State,
  scenario: Scenario,
  rules: ReadonlySet<Mistake>,
): Device {
  const step = new Step({ ...state, broken: undefined, devices: [], numbers: {} }, scenario, rules);
  const device = newDevice(-1, scenario.keys);
  for (const record of records) step.apply(device, record);
  if (step.state.broken !== undefined) throw new Error(step.state.broken);
  return device;
}
