// The destination of writes: the database or a transaction.
import { checkOneOf } from '../base/async.ts';
import type { Durability, WriteOptions } from '../types/index.ts';
import type { Connection } from '../wire/connection.ts';
import { Op } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import type { Call } from './task.ts';

const DURABILITIES: readonly Durability[] = ['strict', 'relaxed', 'none'];

/** The engine's code for a durability. */
export function durabilityCode(durability: Durability): number {
  return checkOneOf('durability', durability, DURABILITIES);
}

/** The failure of a write that was never sent. */
export interface Refused {
  readonly error: unknown;
}

export interface WriteScope {
  /** Writes how a write begins: with its opcode and durability, in a transaction after its id. */
  begin(writer: RequestWriter, op: number, options: WriteOptions | undefined): RequestWriter;
  /** Its commit fails if what was read has changed, so single writes need no check of that. */
  readonly detectsConflicts?: boolean;
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

/** A write. `read` gets the version that begins the reply, and reads the rest of it. */
export function writeCall<T>(
  scope: WriteScope,
  op: number,
  options: WriteOptions | undefined,
  write: (writer: RequestWriter) => unknown,
  read: (reader: ReplyReader, version: number) => T,
): Call<T> {
  return { write: (writer) => write(scope.begin(writer, op, options)), read: (reader) => read(reader, reader.uv()) };
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

  begin(writer: RequestWriter, op: number, options: WriteOptions | undefined): RequestWriter {
    return writer.u8(op).u8(durabilityCode(options?.durability === undefined ? this.#durability : options.durability));
  }
}

/** What a scope needs from its transaction. */
export interface OpenTransaction {
  readonly id: number;
  checkWritable(): void;
  follow?<T>(outcome: Promise<T> | Refused): Promise<T>;
}

/** Writes go to a transaction in the engine and wait there for its commit. */
export class TransactionScope implements WriteScope {
  readonly detectsConflicts = true;
  readonly follow: WriteScope['follow'];
  readonly #transaction: OpenTransaction;

  constructor(transaction: OpenTransaction) {
    this.#transaction = transaction;
    this.follow = transaction.follow && ((outcome) => transaction.follow!(outcome));
  }

  check(): void {
    this.#transaction.checkWritable();
  }

  begin(writer: RequestWriter, op: number): RequestWriter {
    this.check();
    return writer.u8(Op.within).uv(this.#transaction.id).u8(op).u8(0);
  }
}
