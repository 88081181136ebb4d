// A read view of the database.
import type { Collection, Reader, Snapshot, SyncView } from '../types/index.ts';
import { LazyPromise, dispose, ignore } from '../base/async.ts';
import { CollectionReader } from './reader.ts';
import { SnapshotView } from './snapshot-view.ts';
import { promised } from './task.ts';
import type { Target } from '../wire/collection-target.ts';
import type { ApiSyncFaces } from './synchronous.ts';

type Resolve = <K, V, I>(collection: Collection<K, V, I> | string, options?: object) => Target<K, V>;

export class KvSnapshot<K, V> extends CollectionReader<K, V> implements Snapshot<K, V> {
  readonly #view: SnapshotView<Promise<number>>;
  readonly #resolve: Resolve;

  constructor(target: Target<K, V>, resolve: Resolve) {
    const view = new SnapshotView(target.connection, (opening) => promised(target.connection, opening));
    super(target, view);
    // Callers need not ask for the version.
    view.version.catch(ignore);
    this.#view = view;
    this.#resolve = resolve;
  }

  collection<K2, V2, I2>(collection: Collection<K2, V2, I2> | string, options?: object): Reader<K2, V2> {
    return new CollectionReader<K2, V2>(this.#resolve(collection, options), this.#view);
  }

  get version(): Promise<number> {
    return new LazyPromise(() => this.#view.version);
  }

  get sync(): SyncView<K, V> {
    return (this.target.connection.checkSync().syncFaces as ApiSyncFaces).view(this.target, this.#view, this.#resolve);
  }

  close(): Promise<void> {
    return promised(this.target.connection, this.#view.close());
  }

  [dispose](): void {
    this.close().catch(ignore);
  }
}
