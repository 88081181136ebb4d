// A read view of the database.
import type { Collection, Reader, Snapshot, SyncView } from '../types/index.ts';
import { LazyPromise, dispose, ignore } from '../base/async.ts';
import type { Connection } from '../wire/connection.ts';
import { Handle } from '../wire/handle.ts';
import { Op } from '../wire/opcodes.ts';
import { CollectionReader } from './reader.ts';
import type { Target, View } from '../wire/target.ts';

/** Shared by a snapshot's readers, so that each of them keeps the snapshot from being collected. */
class SnapshotView implements View {
  readonly #held: Handle;
  readonly version: Promise<number>;
  isClosed = false;

  constructor(connection: Connection) {
    this.#held = new Handle(connection, Op.snapshotClose, 'snapshot');
    this.version = connection.request((writer) => writer.u8(Op.snapshotOpen).uv(this.id), (reader) => reader.uv());
    // Callers need not ask for the version.
    this.version.catch(ignore);
    this.#held.own(this);
  }

  get id(): number {
    return this.#held.id;
  }

  close(): Promise<void> {
    this.isClosed = true;
    const { connection } = this.#held;
    // A closed database has no snapshots.
    if (!this.#held.release() || connection.status !== 'open') return Promise.resolve();
    const { id } = this.#held;
    return connection.request((writer) => writer.u8(Op.snapshotClose).uv(id), ignore);
  }
}

type Resolve = <K, V, I>(collection: Collection<K, V, I> | string) => Target<K, V>;

export class KvSnapshot<K, V> extends CollectionReader<K, V> implements Snapshot<K, V> {
  readonly #view: SnapshotView;
  readonly #resolve: Resolve;

  constructor(target: Target<K, V>, resolve: Resolve) {
    const view = new SnapshotView(target.connection);
    super(target, view);
    this.#view = view;
    this.#resolve = resolve;
  }

  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | string): Reader<K2, V2> {
    return new CollectionReader<K2, V2>(this.#resolve(collection), this.#view);
  }

  get version(): Promise<number> {
    return new LazyPromise(() => this.#view.version);
  }

  get sync(): SyncView<K, V> {
    return this.target.connection.checkSync().syncFaces.view(this.target, this.#view, this.#resolve);
  }

  close(): Promise<void> {
    return this.#view.close();
  }

  [dispose](): void {
    this.close().catch(ignore);
  }
}
