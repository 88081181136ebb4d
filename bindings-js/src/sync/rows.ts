// What sync keeps in the database, and its bytes.
import { ByteSink, ByteSource, crc32c } from './bytes.ts';
import type { Position } from './remote-log.ts';

/** Who wrote the base's value of a key, and when. */
export interface Stamp {
  readonly h: bigint;
  readonly device: bigint;
  readonly position: Position;
  readonly isStrict: boolean;
  /** The write was a delete. */
  readonly isDead: boolean;
  /** In milliseconds since 1970; 0: never. */
  readonly expiresAt: number;
  /**
   * Version of the entry that holds the base's value; 0: that of the commit which wrote this row.
   * An entry with another version is a local write.
   */
  readonly dataVersion: number;
  /**
   * CRC-32C of the value plus one; 0 if it is not known. Tells the base's values from local writes
   * in a database that was restored from a backup, where entries have other versions.
   */
  readonly check: number;
  /** Counts how often the log's history was lost; a row of an older epoch is not known to the log. */
  readonly epoch: number;
}

const STRICT = 1;
const DEAD = 2;

export function encodeStamp(stamp: Stamp): Uint8Array {
  return new ByteSink().u8((stamp.isStrict ? STRICT : 0) | (stamp.isDead ? DEAD : 0)).u64(stamp.h).u64(stamp.device)
    .uv(stamp.position).uv(stamp.expiresAt).uv(stamp.dataVersion).uv(stamp.epoch).uv(stamp.check).done();
}

export function decodeStamp(bytes: Uint8Array): Stamp {
  const source = new ByteSource(bytes);
  const flags = source.u8();
  return {
    isStrict: (flags & STRICT) !== 0, isDead: (flags & DEAD) !== 0, h: source.u64(), device: source.u64(),
    position: source.uv(), expiresAt: source.uv(), dataVersion: source.uv(), epoch: source.uv(), check: source.uv(),
  };
}

/** Whether these are the bytes of a delete's stamp. */
export function isDeadStamp(bytes: Uint8Array): boolean {
  return ((bytes[0] ?? 0) & DEAD) !== 0;
}

/** Part of a stamp, decoded faster than the whole. */
export interface StampHead extends Pick<Stamp, 'position' | 'expiresAt'> {
  /** How many bytes come before data version and epoch. */
  readonly length: number;
}

export function decodeStampHead(bytes: Uint8Array): StampHead {
  const source = new ByteSource(bytes);
  source.raw(17);
  const [position, expiresAt] = [source.uv(), source.uv()];
  return { position, expiresAt, length: bytes.length - source.left };
}

/** The bytes of the stamp with this head, for an entry that is written in the same commit. */
export function stampInEpoch(bytes: Uint8Array, { length }: StampHead, epoch: number): Uint8Array {
  const source = new ByteSource(bytes);
  const sink = new ByteSink().raw(source.raw(length)).uv(0).uv(epoch);
  source.uv();
  source.uv();
  return sink.raw(source.rest()).done();
}

/** A value of the base, or that there is none. */
export type BaseValue = { readonly value: Uint8Array; readonly expiresAt: number } | null;

/** A key whose entry is not the base's value, but a local write that the log has not confirmed. */
export interface Overlay {
  /** The newest record in the outbox that writes the key; 0: the write was not read from the feed yet. */
  readonly ticket: number;
  /** Version of that write; 0: that of the commit which wrote this row. */
  readonly captured: number;
  readonly isDelete: boolean;
  readonly expiresAt: number;
  /** The base's value, if it was written since; otherwise nobody needs it. */
  readonly base: BaseValue | undefined;
}

const DELETE = 1;
const HAS_BASE = 2;
const BASE_ABSENT = 4;

export function encodeOverlay({ ticket, captured, isDelete, expiresAt, base }: Overlay): Uint8Array {
  const flags = (isDelete ? DELETE : 0) | (base === undefined ? 0 : HAS_BASE) | (base === null ? BASE_ABSENT : 0);
  const sink = new ByteSink().u8(flags).uv(ticket).uv(captured).uv(expiresAt);
  if (base) sink.uv(base.expiresAt).raw(base.value);
  return sink.done();
}

export function decodeOverlay(bytes: Uint8Array): Overlay {
  const source = new ByteSource(bytes);
  const flags = source.u8();
  const [ticket, captured, expiresAt] = [source.uv(), source.uv(), source.uv()];
  const readBase = (): BaseValue => (flags & BASE_ABSENT ? null : { expiresAt: source.uv(), value: source.rest().slice() });
  return { ticket, captured, expiresAt, isDelete: (flags & DELETE) !== 0, base: flags & HAS_BASE ? readBase() : undefined };
}

/** Of a key in strict mode: the base's value, whatever the entry is. */
export function copyOf(base: NonNullable<BaseValue>): Uint8Array {
  return encodeOverlay({ ticket: 0, captured: 0, isDelete: false, expiresAt: 0, base });
}

/** Where in the log a device is, and what it saw there: another record later means lost history. */
export interface Cursor {
  readonly position: Position;
  readonly serverTime: number;
  readonly crc: number;
}

/** An id that the device had, and how its sequence numbers followed from tickets. */
export interface FormerId {
  readonly device: string;
  readonly offset: number;
}

/** The row that every commit of sync writes; by it the feed tells them from the application's. */
export interface SyncState {
  /** Hexadecimal. */
  readonly device: string;
  readonly formers: readonly FormerId[];
  /** A record's sequence number is its ticket less this; undefined until the id sends its first one. */
  readonly offset: number | undefined;
  readonly nextTicket: number;
  readonly cursor: Cursor;
  /**
   * Local commits up to this version are in the outbox; negative: all entries have to be compared
   * with the base. -1: none ever were.
   */
  readonly drained: number;
  /** The log's position that was applied at that version. */
  readonly drainedBase: Position;
  /** The greatest time seen, hexadecimal. */
  readonly hlc: string;
  readonly epoch: number;
  /**
   * The history is being read again. "lost": what it turns out to lack is put back at its end.
   * "reread": what it lacks was deleted meanwhile.
   */
  readonly rejoin: 'lost' | 'reread' | undefined;
  /** Names of the collections that are synchronized. */
  readonly collections: readonly string[];
  /** The greatest server time seen: the horizon of tombstones follows it. */
  readonly highTime: number;
  /** The device whose fence is the newest. */
  readonly fence: string | undefined;
  /** Version of the witness row: another one in a database that was restored. 0: there is none yet. */
  readonly witness: number;
  /** Every commit writes another value. */
  readonly serial: number;
}

/**
 * The last applied record of a device: its sequence number, and a checksum of its body and of all
 * before it. By the checksum a device knows whether records under its id are its own: a copy of its
 * file may have used the same numbers.
 */
export type AppliedRow = readonly [seq: number, chain: number];

export const NOTHING_APPLIED: AppliedRow = [0, 0];

/** The row after one more record. */
export function follow([, chain]: AppliedRow, seq: number, body: Uint8Array): AppliedRow {
  return [seq, crc32c(body, chain)];
}

/** A record that waits to be sent or confirmed. */
export interface OutboxRow {
  readonly flags: number;
  /** For a record that must follow the one at this position; otherwise undefined. */
  readonly expect: Position | undefined;
  /** Plain, and the same whenever it is sent. */
  readonly body: Uint8Array;
}

/** A strict record that a tab has offered. It is in the log once it is in the outbox no more, unless it was refused. */
export interface OfferedRow {
  /** Its number in the outbox; 0 if it never was there. */
  readonly ticket: number;
  /** The device's id at that time. */
  readonly device: string;
  readonly isRefused: boolean;
}

export function encodeOutbox({ flags, expect, body }: OutboxRow): Uint8Array {
  return new ByteSink().u8(flags).uv(expect === undefined ? 0 : expect + 1).raw(body).done();
}

export function decodeOutbox(bytes: Uint8Array): OutboxRow {
  const source = new ByteSource(bytes);
  const [flags, expect] = [source.u8(), source.uv()];
  return { flags, expect: expect === 0 ? undefined : expect - 1, body: source.rest().slice() };
}
