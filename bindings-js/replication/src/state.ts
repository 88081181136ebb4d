// What replication keeps in the database beside its rows, and its bytes.
import { TextEncoder } from 'mangrove-kv/internal';
import type { KvErrorCode } from 'mangrove-kv';
import { ByteSink, ByteSource, crc32c } from './bytes.ts';
import type { Position } from './remote-log.ts';
import type { Bytes } from './tables.ts';

/** Where in the log a device is, and what it saw there: another record later means lost history. */
export interface Cursor {
  readonly position: Position;
  readonly serverTime: number;
  readonly crc: number;
}

/** Number of the base's values of a collection, and the sum of their hashes. */
export type Digest = readonly [count: number, sum: number];

export interface FormerId {
  /** Hexadecimal. */
  readonly device: string;
  readonly last: AppliedRow;
  /** The log has lost nothing since: what was sent under this id is in it, or never will be. */
  readonly isKept?: boolean;
}

/** See `ReplicaState.drained`. */
export const UNCOMPARED = -2;

/** The row that every commit of replication writes; by it the feed tells them from the application's. */
export interface ReplicaState {
  /** Hexadecimal. */
  readonly device: string;
  /** Ids that the device had before, and the last record of each that it has read. */
  readonly formers: readonly FormerId[];
  /** Number of the next record in the outbox. No number is used twice. */
  readonly nextTicket: number;
  readonly cursor: Cursor;
  /**
   * Local commits up to this version are in the outbox; negative: all entries have to be compared
   * with the base. -1: none ever were.
   */
  readonly drained: number;
  /** The log's position that was applied at that version. */
  readonly drainedBase: Position;
  /** The engine has removed values by a clock that was ahead of the log: those that expire up to this time. 0: none. */
  readonly removedUntil: number;
  /** The greatest time seen, hexadecimal. */
  readonly hlc: string;
  /** The log's time: the greatest server time of the records applied. By it entries expire. */
  readonly time: number;
  /** See `Histories`. */
  readonly history: number;
  readonly settled: number;
  /** While it is read again: the log was read up to this position before. */
  readonly readBefore: number;
  /**
   * The history is being read again. "lost": what it turns out to lack is put back at its end.
   * "reread": what it lacks was deleted meanwhile.
   */
  readonly rejoin: 'lost' | 'reread' | undefined;
  /** A snapshot is being loaded, or was when the process ended. */
  readonly isLoading: boolean;
  /** The collections that a program on this file replicates, and their declarations. */
  readonly collections: { readonly [name: string]: string };
  /** Of those: what the program that replicated last did not know. */
  readonly hidden: readonly string[];
  /** How the log's records declare collections; the first one decides. */
  readonly declared: { readonly [name: string]: string };
  /** What the log had declared, while it is read once more. */
  readonly formerlyDeclared: { readonly [name: string]: string };
  /** How much the program understood that set records aside, which a later one may read; see `UNDERSTANDING`. */
  readonly aside: number | undefined;
  /** Position of a check whose digests were not those of this base; undefined: the newest one that was read agrees. */
  readonly diverged: Position | undefined;
  /** The history is being read again because of that. */
  readonly isMending: boolean;
  readonly digests: { readonly [name: string]: Digest };
  /** Version of the witness row: another one in a database that was restored. 0: there is none yet. */
  readonly witness: number;
  /** Every commit writes another value. */
  readonly serial: number;
}

/**
 * The last applied record of a device: its sequence number, and a checksum of its body and of all
 * before it. By the checksum a device knows whether records under its id are its own: a copy of its
 * file may have used the same numbers. And who sent its first record, if the log says so: nobody else
 * can use its id.
 */
export type AppliedRow = readonly [seq: number, chain: number, sender?: string];

export const NOTHING_APPLIED: AppliedRow = [0, 0];

const CUT = new TextEncoder().encode('cut');

/** The row after one more record. `isCut`: parts before it are missing, so what it completes has no effect. */
export function follow(
  [, chain, known]: AppliedRow,
  seq: number,
  body: Uint8Array,
  {
    sender = known,
    isCut = false,
  }: { readonly sender?: string | undefined; readonly isCut?: boolean | undefined } = {},
): AppliedRow {
  const next = crc32c(body, isCut ? crc32c(CUT, chain) : chain);
  return sender === undefined ? [seq, next] : [seq, next, sender];
}

/** A record that waits to be sent or confirmed. */
export interface OutboxRow {
  readonly flags: number;
  /** For a record that must follow the one at this position; otherwise undefined. */
  readonly expect: Position | undefined;
  /** Plain, and the same whenever it is sent. */
  readonly body: Bytes;
}

export function encodeOutbox({ flags, expect, body }: OutboxRow): Bytes {
  return new ByteSink()
    .u8(flags)
    .uv(expect === undefined ? 0 : expect + 1)
    .raw(body)
    .done();
}

export function decodeOutbox(bytes: Bytes): OutboxRow {
  const source = new ByteSource(bytes);
  const [flags, expect] = [source.u8(), source.uv()];
  return { flags, expect: expect === 0 ? undefined : expect - 1, body: source.rest().slice() };
}

/** A record of the log that has no effect here, or only a part of its effect. */
export interface AsideRow {
  readonly code: KvErrorCode;
  readonly message: string;
  /** As it came from the log. */
  readonly record: Bytes;
}

/** A strict record that a tab has offered. It is in the log once it is in the outbox no more, unless it was refused. */
export interface OfferedRow {
  /** Its number in the outbox; 0 if it never was there. */
  readonly ticket: number;
  /** The device's id at that time. */
  readonly device: string;
  readonly isRefused: boolean;
}
