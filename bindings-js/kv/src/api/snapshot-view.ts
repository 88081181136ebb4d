// The view of a snapshot, which its readers share: each keeps it from being collected.
import { ignore } from '../base/async.ts';
import type { Connection } from '../wire/connection.ts';
import { Handle } from '../wire/handle.ts';
import { Op } from '../wire/opcodes.ts';
import type { View } from '../wire/contracts.ts';
import type { Call, Task } from './task.ts';

export class SnapshotView<T> implements View {
  readonly #held: Handle;
  /** Number of the commit that it sees. */
  readonly version: T;
  isClosed = false;

  /** `carry` opens the snapshot. */
  constructor(connection: Connection, carry: (opening: Call<number>) => T) {
    this.#held = new Handle(connection, Op.snapshotClose, 'snapshot');
    this.version = carry({ write: (writer) => writer.u8(Op.snapshotOpen).uv(this.id), read: (reader) => reader.uv() });
    this.#held.own(this);
  }

  get id(): number {
    return this.#held.id;
  }

  close(): Task<void> {
    this.isClosed = true;
    const held = this.#held;
    // A closed database has no snapshots.
    if (!held.release() || held.connection.status !== 'open') return { found: undefined };
    const { id } = held;
    return { write: (writer) => writer.u8(Op.snapshotClose).uv(id), read: ignore };
  }
}
