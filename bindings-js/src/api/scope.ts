// The destination of writes: the database or a transaction.
import { KvError } from '../base/errors.ts';
import type { Durability, WriteOptions } from '../types/index.ts';
import type { Connection } from '../wire/connection.ts';
import { forgetIndexes } from './indexes.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';

const DURABILITIES: readonly Durability[] = ['strict', 'relaxed', 'none'];

/** The engine's code for a durability. */
export function durabilityCode(durability: Durability): number {
  const code = DURABILITIES.indexOf(durability);
  if (code < 0) throw new KvError('KV_INVALID_ARGUMENT', 'durability has to be "strict", "relaxed" or "none"');
  return code;
}

/** The failure of a write that was never sent. */
export interface Refused {
  readonly error: unknown;
}

export interface WriteScope {
  /** Sends a write. `read` gets the version that begins the reply, and reads the rest of it. */
  write<T>(
    op: number,
    options: WriteOptions | undefined,
    write: (writer: RequestWriter) => unknown,
    read: (reader: ReplyReader, version: number) => T,
  ): Promise<T>;
  /** Throws if the scope refuses writes at the moment. */
  check(): void;
  /** Tracks the outcome of a write: its promise, or the failure that kept it from being sent. */
  readonly follow?: (<T>(outcome: Promise<T> | Refused) => Promise<T>) | undefined;
  /**
   * `Connection.hold`, if that is possible now. Transactions have none: one could end during the
   * hold.
   */
  readonly hold?: (<T>(prepared: Promise<void>, run: () => Promise<T>) => Promise<T>) | undefined;
}

/** Each write is its own commit. */
export class DatabaseScope implements WriteScope {
  readonly #connection: Connection;
  readonly #durability: Durability;

  constructor(connection: Connection, durability: Durability) {
    this.#connection = connection;
    this.#durability = durability;
  }

  check(): void {
    this.#connection.checkOutside();
  }

  get hold(): WriteScope['hold'] {
    const connection = this.#connection;
    return connection.canHold ? (prepared, run) => connection.hold(prepared, run) : undefined;
  }

  write<T>(
    op: number,
    options: WriteOptions | undefined,
    write: (writer: RequestWriter) => unknown,
    read: (reader: ReplyReader, version: number) => T,
  ): Promise<T> {
    const durability = durabilityCode(options?.durability === undefined ? this.#durability : options.durability);
    return this.#connection.request((writer) => write(writer.u8(op).u8(durability)), (reader) => read(reader, reader.uv()));
  }
}

/** What a scope needs from its transaction. */
export interface OpenTransaction {
  readonly connection: Connection;
  readonly id: number;
  checkWritable(): void;
  follow<T>(outcome: Promise<T> | Refused): Promise<T>;
}

/** Writes go to a transaction in the engine and wait there for its commit. */
export class TransactionScope implements WriteScope {
  readonly #transaction: OpenTransaction;

  constructor(transaction: OpenTransaction) {
    this.#transaction = transaction;
  }

  check(): void {
    this.#transaction.checkWritable();
  }

  readonly follow = <T>(outcome: Promise<T> | Refused): Promise<T> => this.#transaction.follow(outcome);

  write<T>(
    op: number,
    _options: WriteOptions | undefined,
    write: (writer: RequestWriter) => unknown,
    read: (reader: ReplyReader, version: number) => T,
  ): Promise<T> {
    const { connection, id } = this.#transaction;
    this.check();
    return connection.request(
      (writer) => write(writer.u8(Op.within).uv(id).u8(op).u8(0)),
      (reader) => read(reader, reader.uv()),
    );
  }
}

/** Drops a collection. Its indexes go with it, so a later write declares them again. */
export function dropIn(scope: WriteScope, connection: Connection, name: string): Promise<boolean> {
  forgetIndexes(connection, name);
  return scope.write(Op.drop, undefined, (writer) => writer.str(name), (reader) => reader.u8() !== 0);
}

export function renameIn(scope: WriteScope, connection: Connection, from: string, to: string): Promise<boolean> {
  for (const name of [from, to]) forgetIndexes(connection, name);
  return scope.write(Op.rename, undefined, (writer) => writer.str(from).str(to), (reader) => reader.u8() !== 0);
}
