// What the records of a log mean, by docs/REPLICATION.md: an implementation of its own, with a decoder of its
// own, which knows nothing of outboxes, rows, caches or snapshots. It reads the log from its start.
import { createHash } from 'node:crypto';
import { inflateRawSync } from 'node:zlib';

/** A record as the log's server has it. */
export interface Logged {
  readonly position: number;
  readonly serverTime: number;
  readonly record: Uint8Array;
}

const FLAGS = { strict: 1, repair: 2, part: 4, deflated: 8, sealed: 16, fence: 32, otherHistory: 64, check: 128 };
const MINUTE = 60_000;
const RECORD_LIMIT = 1024 * 1024;
const FORGOTTEN_AFTER = 90 * 86_400_000;

/** A value, or the name of a large one. */
export interface Content {
  readonly bytes?: Uint8Array;
  readonly sha256?: string;
  readonly size: number;
  readonly checksum: number;
  /** Infinity: never. */
  readonly expiry: number;
}

/** The last write of a key that had an effect. */
export interface Cell {
  readonly clock: bigint;
  readonly device: bigint;
  readonly n: number;
  readonly position: number;
  /** Undefined: it was deleted, or has expired. */
  content: Content | undefined;
}

export interface Operation {
  readonly kind: 'set' | 'delete' | 'clear';
  readonly collection: string;
  /** Hexadecimal. */
  readonly key: string;
  readonly content?: Content;
  readonly from?: { readonly key: string; readonly isOpen: boolean } | undefined;
  readonly to?: { readonly key: string; readonly isOpen: boolean } | undefined;
  readonly stamp?: { readonly clock: bigint; readonly device: bigint; readonly n: number };
  /** Whether it had an effect. */
  hasWon?: boolean;
}

export interface OracleTransaction {
  readonly base: number;
  readonly clock: bigint;
  readonly operations: Operation[];
}

/** A record that has an effect, and what is in it. */
export interface Accepted {
  readonly position: number;
  readonly device: bigint;
  readonly number: number;
  readonly n: number;
  readonly parts: number;
  readonly isStrict: boolean;
  readonly isRepair: boolean;
  readonly transactions: readonly OracleTransaction[];
}

interface Declaration {
  readonly text: string;
  readonly mode: string;
  readonly prefixes: readonly (readonly [from: string, to: string | null, mode: string])[];
}

interface Body {
  readonly n: number;
  readonly declarations: Map<string, string>;
  readonly transactions: OracleTransaction[];
}

/** Why a record or an operation has no effect. */
export type Reason = 'damaged' | 'meaningless' | 'out of place' | 'declaration' | 'mode' | 'part missing' | 'unknown';

class Refusal extends Error {
  readonly reason: Reason;

  constructor(reason: Reason) {
    super(reason);
    this.reason = reason;
  }
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const REMAINDERS = Array.from({ length: 256 }, (_, byte) => {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) remainder = (remainder >>> 1) ^ (remainder & 1 ? 0x82f6_3b78 : 0);
  return remainder;
});

/** CRC-32C. */
function checksumOf(bytes: Uint8Array): number {
  let rest = 0xffff_ffff;
  for (const byte of bytes) rest = (REMAINDERS[(rest ^ byte) & 255] as number) ^ (rest >>> 8);
  return ~rest >>> 0;
}

const contentOf = (bytes: Uint8Array, expiry: number): Content => ({
  bytes,
  size: bytes.length,
  checksum: (bytes.length % RECORD_LIMIT) * 4_294_967_296 + checksumOf(bytes) + 1,
  expiry: expiry || Infinity,
});

/** Whether a stored value is the one of a record. */
export function isContent(content: Content, stored: Uint8Array): boolean {
  if (content.bytes !== undefined) return Buffer.compare(content.bytes, stored) === 0;
  return content.size === stored.length && createHash('sha256').update(stored).digest('hex') === content.sha256;
}

/** Whether a clear's range has a key. */
export function isInRange({ from, to }: Operation, key: string): boolean {
  return (
    (from === undefined || key > from.key || (key === from.key && !from.isOpen)) &&
    (to === undefined || key < to.key || (key === to.key && !to.isOpen))
  );
}

/** Takes a body apart from its front. */
class Reader {
  #rest: Buffer;

  constructor(bytes: Uint8Array) {
    this.#rest = Buffer.from(bytes);
  }

  get isAtEnd(): boolean {
    return this.#rest.length === 0;
  }

  take(count: number): Buffer {
    if (count > this.#rest.length) throw new Refusal('meaningless');
    const taken = this.#rest.subarray(0, count);
    this.#rest = this.#rest.subarray(count);
    return taken;
  }

  rest(): Buffer {
    return this.take(this.#rest.length);
  }

  byte(): number {
    return this.take(1)[0] as number;
  }

  long(): bigint {
    return this.take(8).readBigUInt64BE();
  }

  number(): number {
    const byte = this.byte();
    const value = byte < 128 ? byte : byte - 128 + 128 * this.number();
    if (value > Number.MAX_SAFE_INTEGER) throw new Refusal('meaningless');
    return value;
  }

  block(): Buffer {
    return this.take(this.number());
  }

  name(): string {
    const bytes = this.block();
    const name = bytes.toString('utf8');
    if (Buffer.compare(Buffer.from(name, 'utf8'), bytes) !== 0) throw new Refusal('meaningless');
    return name;
  }
}

function readBody(bytes: Uint8Array, isCheck: boolean): Body {
  const reader = new Reader(bytes);
  const names: string[] = [];
  const declarations = new Map<string, string>();
  const bound = (): { key: string; isOpen: boolean } | undefined => {
    const kind = reader.byte();
    if (kind > 2) throw new Refusal('meaningless');
    return kind === 0 ? undefined : { key: hex(reader.block()), isOpen: kind === 2 };
  };
  const operation = (): Operation => {
    const code = reader.byte();
    const stamp =
      (code & 0x40) !== 0 ? { stamp: { clock: reader.long(), device: reader.long(), n: reader.number() } } : {};
    const which = reader.number();
    if (which > names.length) throw new Refusal('meaningless');
    if (which === names.length) {
      names.push(reader.name());
      declarations.set(names[which] as string, reader.name());
    }
    const collection = names[which] as string;
    const kind = code & 0x3f;
    if (kind === 3) return { kind: 'clear', collection, key: '', from: bound(), to: bound() };
    const key = hex(reader.block());
    if (kind === 2) return { kind: 'delete', collection, key, ...stamp };
    if (kind !== 1 && kind !== 4) throw new Refusal('unknown');
    const expiry = reader.number();
    if (kind === 1) return { kind: 'set', collection, key, content: contentOf(reader.block(), expiry), ...stamp };
    const [size, checksum] = [reader.number(), reader.number()];
    return {
      kind: 'set',
      collection,
      key,
      content: { size, checksum, expiry: expiry || Infinity, sha256: hex(reader.take(32)) },
      ...stamp,
    };
  };
  const n = reader.number();
  const transactions: OracleTransaction[] = [];
  for (let left = reader.number(); left > 0; left--) {
    const transaction: OracleTransaction = { base: reader.number(), clock: reader.long(), operations: [] };
    for (let more = reader.number(); more > 0; more--) transaction.operations.push(operation());
    transactions.push(transaction);
  }
  while (isCheck && !reader.isAtEnd) {
    reader.name();
    reader.number();
    reader.number();
  }
  if (!reader.isAtEnd) throw new Refusal('meaningless');
  return { n, declarations, transactions };
}

function readDeclaration(text: string): Declaration | undefined {
  try {
    const { key, value, mode, prefixes = [] } = JSON.parse(text) as Declaration & { key: unknown; value: unknown };
    return text.length <= 4096 && typeof key === 'string' && typeof value === 'string' && /^(merge|strict)$/.test(mode)
      ? { text, mode, prefixes }
      : undefined;
  } catch {
    return undefined;
  }
}

/** Of the prefixes with which a key begins the longest decides: the one that covers the smallest range. */
function modeOf({ mode, prefixes }: Declaration, key: string): string {
  const covering = prefixes.filter(([from, to]) => from <= key && (to === null || key < to));
  const isWithin = (
    [from, to]: Declaration['prefixes'][number],
    [outerFrom, outerTo]: Declaration['prefixes'][number],
  ): boolean => from >= outerFrom && (outerTo === null || (to !== null && to <= outerTo));
  return covering.find((each) => covering.every((other) => isWithin(each, other)))?.[2] ?? mode;
}

export interface OracleOptions {
  /** The longest key that the databases take. */
  readonly maxKeyBytes?: number;
}

export class Oracle {
  /** The last write of each key, by collection and hexadecimal key. */
  readonly collections = new Map<string, Map<string, Cell>>();
  readonly accepted: Accepted[] = [];
  readonly refused: { readonly position: number; readonly reason: Reason }[] = [];
  readonly skipped: number[] = [];
  readonly gaps: { readonly position: number; readonly device: bigint; readonly from: number; readonly to: number }[] =
    [];
  readonly expired: { readonly position: number; readonly collection: string; readonly key: string }[] = [];
  readonly checks: number[] = [];
  /** The log's time. */
  time = 0;
  /** Position of the newest record. */
  position = 0;
  readonly #options: OracleOptions;
  readonly #declarations = new Map<string, Declaration>();
  readonly #numbers = new Map<bigint, number>();
  readonly #parts = new Map<string, Uint8Array>();

  constructor(records: Iterable<Logged> = [], options: OracleOptions = {}) {
    this.#options = options;
    for (const record of records) this.read(record);
  }

  /** The entries of a collection that have neither been deleted nor expired. */
  entries(collection: string): Map<string, Content> {
    const cells = [...(this.collections.get(collection) ?? [])].filter(([, { content }]) => content !== undefined);
    return new Map(cells.map(([key, { content }]) => [key, content as Content]));
  }

  read(logged: Logged): void {
    const { position } = logged;
    const before = this.position;
    this.position = position;
    try {
      this.#read(logged, before);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.refused.push({ position, reason: error.reason });
    }
  }

  #read({ position, serverTime, record }: Logged, before: number): void {
    const bytes = Buffer.from(record);
    const end = bytes.length - 4;
    if (bytes.length < 16 || bytes.readUInt32BE(end) !== checksumOf(bytes.subarray(0, end)))
      throw new Refusal('damaged');
    if (bytes[0] !== 1) throw new Refusal('unknown');
    const flags = bytes[1] as number;
    const has = (flag: number): boolean => Math.floor(flags / flag) % 2 === 1;
    if (has(FLAGS.sealed)) throw new Error('the oracle has no keys');
    const head = new Reader(bytes.subarray(2, end));
    const [device, number, back] = [head.long(), head.number(), head.number()];
    const plain = this.#inflate(head.rest(), has(FLAGS.deflated));
    const last = this.#numbers.get(device) ?? 0;
    if (number <= last) {
      this.#advance(position, serverTime);
      this.skipped.push(position);
      return;
    }
    if (number - back > last) this.gaps.push({ position, device, from: last + 1, to: number - back });
    this.#numbers.set(device, number);
    this.#advance(position, serverTime);
    const whole = has(FLAGS.part) ? this.#join(device, number, plain) : { bytes: plain, count: 1 };
    if (whole === undefined) return;
    const body = readBody(whole.bytes, has(FLAGS.check));
    for (const { operations } of body.transactions) {
      if (operations.some(({ key }) => key.length / 2 > (this.#options.maxKeyBytes ?? Infinity)))
        throw new Refusal('meaningless');
    }
    const hasPlace = has(FLAGS.strict) || has(FLAGS.fence) || has(FLAGS.check);
    if (hasPlace && body.transactions.some(({ base }) => base !== before)) throw new Refusal('out of place');
    if (has(FLAGS.check)) {
      this.checks.push(position);
      return;
    }
    const accepted: Accepted = {
      position,
      device,
      number,
      n: body.n,
      parts: whole.count,
      isStrict: has(FLAGS.strict),
      isRepair: has(FLAGS.repair),
      transactions: body.transactions,
    };
    const usable = this.#declare(body, position);
    for (const { base, clock, operations } of body.transactions) {
      const common = { clock: this.#limit(clock), device, n: body.n, base: has(FLAGS.otherHistory) ? 0 : base };
      for (const operation of operations)
        if (usable.has(operation.collection)) this.#operate(accepted, operation, common);
    }
    this.accepted.push(accepted);
  }

  #inflate(bytes: Uint8Array, isDeflated: boolean): Uint8Array {
    if (!isDeflated) return bytes;
    try {
      return inflateRawSync(bytes, { maxOutputLength: RECORD_LIMIT });
    } catch {
      throw new Refusal('damaged');
    }
  }

  /** The body that a part completes; undefined: others follow. */
  #join(
    device: bigint,
    number: number,
    part: Uint8Array,
  ): { readonly bytes: Uint8Array; readonly count: number } | undefined {
    const reader = new Reader(part);
    const [index, left] = [reader.take(4).readUInt32BE(), reader.take(4).readUInt32BE()];
    this.#parts.set(`${device} ${number}`, part.subarray(8));
    if (left > 0) return undefined;
    const parts: Uint8Array[] = [];
    for (let at = number - index; at <= number; at++) {
      const found = this.#parts.get(`${device} ${at}`);
      if (found === undefined) throw new Refusal('part missing');
      parts.push(found);
    }
    return { bytes: Buffer.concat(parts), count: parts.length };
  }

  /** Moves the log's time, and ends what has expired by it. */
  #advance(position: number, serverTime: number): void {
    if (serverTime <= this.time) return;
    this.time = serverTime;
    for (const [collection, cells] of this.collections) {
      for (const [key, cell] of cells) {
        if (cell.content === undefined || cell.content.expiry > serverTime) continue;
        cell.content = undefined;
        this.expired.push({ position, collection, key });
      }
    }
  }

  /** The collections whose operations have an effect. */
  #declare({ declarations }: Body, position: number): Set<string> {
    const usable = new Set<string>();
    for (const [name, text] of declarations) {
      const declaration = readDeclaration(text);
      if (declaration !== undefined && !this.#declarations.has(name)) {
        this.#declarations.set(name, declaration);
        this.collections.set(name, new Map());
      }
      if (this.#declarations.get(name)?.text === text) usable.add(name);
      else this.refused.push({ position, reason: 'declaration' });
    }
    return usable;
  }

  #limit(clock: bigint): bigint {
    const limit = BigInt(this.time + MINUTE) * 65_536n;
    return clock > limit ? limit : clock;
  }

  #operate(
    { position, isStrict, isRepair }: Accepted,
    operation: Operation,
    common: Omit<Cell, 'position' | 'content'> & { readonly base: number },
  ): void {
    const { kind, collection, key, content, stamp } = operation;
    const cells = this.collections.get(collection) as Map<string, Cell>;
    const declaration = this.#declarations.get(collection) as Declaration;
    const isOwnMode = (of: string): boolean => modeOf(declaration, of) === (isStrict ? 'strict' : 'merge');
    if (kind === 'clear') {
      for (const [each, { content: there }] of cells) {
        if (isInRange(operation, each) && there !== undefined && isOwnMode(each))
          this.#write(cells, each, undefined, common, { position, isStrict, isRepair });
      }
      return;
    }
    if (!isRepair && !isOwnMode(key)) {
      this.refused.push({ position, reason: 'mode' });
      return;
    }
    const write = isRepair && stamp !== undefined ? { ...common, ...stamp, clock: this.#limit(stamp.clock) } : common;
    operation.hasWon = this.#write(cells, key, content, write, { position, isStrict, isRepair });
  }

  #write(
    cells: Map<string, Cell>,
    key: string,
    content: Content | undefined,
    { clock, device, n, base }: Omit<Cell, 'position' | 'content'> & { readonly base: number },
    { position, isStrict, isRepair }: Pick<Accepted, 'position' | 'isStrict' | 'isRepair'>,
  ): boolean {
    const there = cells.get(key);
    let least = 0n;
    const isForgotten =
      there !== undefined &&
      there.content === undefined &&
      there.clock < BigInt(Math.max(0, this.time - FORGOTTEN_AFTER)) * 65_536n;
    if (there !== undefined && !isForgotten) {
      const isKnown = there.device === device ? n >= there.n : there.position <= base;
      const comesAgain = there.device === device && there.n === n;
      if (!isRepair && (isStrict || isKnown)) least = comesAgain && !isStrict ? there.clock : there.clock + 1n;
      else if (!isRepair && there.device === device) return false;
      else {
        const mine = [clock, device, BigInt(n), BigInt(content?.checksum ?? 0)];
        const theirs = [there.clock, there.device, BigInt(there.n), BigInt(there.content?.checksum ?? 0)];
        const at = mine.findIndex((each, index) => each !== theirs[index]);
        if (at < 0 ? !isRepair : (mine[at] as bigint) < (theirs[at] as bigint)) return false;
      }
    }
    const isOver = content !== undefined && content.expiry <= this.time;
    cells.set(key, {
      clock: clock > least ? clock : least,
      device,
      n,
      position,
      content: isOver ? undefined : content,
    });
    return true;
  }
}
