// Where writes go: to the database, or to a transaction.
import { KvError } from '../errors.ts';
import type { Durability, WriteOptions } from '../types.ts';
import type { Connection } from './connection.ts';
import { Op } from './protocol.ts';
import type { ReplyReader, RequestWriter } from './protocol.ts';

const DURABILITIES: readonly Durability[] = ['strict', 'relaxed', 'none'];

/** How the engine is told when a write counts as done. */
export function durabilityCode(durability: Durability): number {
  const code = DURABILITIES.indexOf(durability);
  if (code < 0) throw new KvError('KV_INVALID_ARGUMENT', 'durability has to be "strict", "relaxed" or "none"');
  return code;
}

export interface WriteScope {
  /** Sends a write; `read` gets what follows its version. */
  write<T>(
    op: number,
    options: WriteOptions | undefined,
    write: (writer: RequestWriter) => unknown,
    read: (reader: ReplyReader, version: number) => T,
  ): Promise<T>;
  /** `Connection.hold`, where that may be: what is called meanwhile waits. A transaction could end before. */
  readonly hold?: (<T>(prepared: Promise<void>, run: () => Promise<T>) => Promise<T>) | undefined;
}

/** Each write is a commit of its own. */
export class DatabaseScope implements WriteScope {
  readonly #connection: Connection;
  readonly #durability: Durability;

  constructor(connection: Connection, durability: Durability) {
    this.#connection = connection;
    this.#durability = durability;
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
    const durability = durabilityCode(options?.durability ?? this.#durability);
    return this.#connection.request((writer) => write(writer.u8(op).u8(durability)), (reader) => read(reader, reader.uv()));
  }
}

/** Tells whether a transaction takes writes, by throwing. */
export type CheckWritable = () => void;

/** Writes wait in a transaction of the engine. */
export class TransactionScope implements WriteScope {
  readonly #connection: Connection;
  readonly #id: number;
  readonly #check: CheckWritable;

  constructor(connection: Connection, id: number, check: CheckWritable) {
    this.#connection = connection;
    this.#id = id;
    this.#check = check;
  }

  write<T>(
    op: number,
    _options: WriteOptions | undefined,
    write: (writer: RequestWriter) => unknown,
    read: (reader: ReplyReader, version: number) => T,
  ): Promise<T> {
    this.#check();
    return this.#connection.request(
      (writer) => write(writer.u8(Op.within).uv(this.#id).u8(op).u8(0)),
      (reader) => read(reader, reader.uv()),
    );
  }
}
