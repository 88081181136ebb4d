// The commits of the database that are not in the outbox yet, read without waiting.
import { KvError } from '../base/errors.ts';
import { valueCodecs } from '../codec/values.ts';
import type { Commit, CommitIterator, Database } from '../types/index.ts';
import type { SyncState } from './rows.ts';
import { STATE_COLLECTION } from './tables.ts';

type Raw = Commit<Uint8Array, Uint8Array>;

/** A commit of the application, or one of sync, of which only the log's position that it states is kept. */
export type LocalCommit =
  | { readonly version: number; readonly changes: Raw['changes']; readonly isOwn?: undefined }
  | { readonly version: number; readonly base: number | undefined; readonly isOwn: true };

/** Commits of sync that are kept until the application commits. */
const MAX_OWN_COMMITS = 256;

/** Every commit of sync writes its state, and no other does. */
function toLocal({ version, changes }: Raw): LocalCommit {
  const row = changes.find(({ collection }) => collection === STATE_COLLECTION);
  if (row === undefined) return { version, changes };
  const base = row.type === 'set' ? valueCodecs.json<SyncState>().decode(row.value).cursor.position : undefined;
  return { version, base, isOwn: true };
}

export class LocalFeed {
  readonly #db: Database;
  readonly #probe: () => Promise<unknown>;
  readonly #onCommit: () => void;
  #commits: CommitIterator<Uint8Array, Uint8Array> | undefined;
  #queue: LocalCommit[] = [];
  #failure: unknown;
  /** Commits up to this version are not of interest. */
  #after = -1;

  /**
   * `probe` asks the database for anything. `onCommit` is called when there is a commit of the
   * application, when many of sync are there, or a reason why there cannot be one.
   */
  constructor(db: Database, probe: () => Promise<unknown>, onCommit: () => void) {
    this.#db = db;
    this.#probe = probe;
    this.#onCommit = onCommit;
  }

  /** Starts, or starts anew, after a commit; by default with the next one. */
  start(since?: number): void {
    this.stop();
    this.#queue = [];
    this.#failure = undefined;
    this.#after = since ?? -1;
    this.#commits = this.#db.changes({ ...(since !== undefined && { since }), raw: true, only: STATE_COLLECTION }) as CommitIterator<Uint8Array, Uint8Array>;
    this.#pull();
  }

  stop(): void {
    this.#commits?.return().catch(() => undefined);
    this.#commits = undefined;
  }

  /** Whether the application has committed since. */
  get hasCommits(): boolean {
    return this.#queue.some(({ isOwn }) => !isOwn);
  }

  /** What is there. A view: `taken` removes from its front. */
  async peek(): Promise<readonly LocalCommit[]> {
    for (let before = -1; before !== this.#queue.length && this.#queue.length < 4096;) {
      before = this.#queue.length;
      // Replies come in order: commits that there are come before these.
      for (let probes = 0; probes < 3; probes++) await this.#probe();
    }
    if (this.#queue.length === 0 && this.#failure !== undefined) throw this.#failure;
    return this.#queue;
  }

  /** Leaves out commits up to a version. */
  skipTo(version: number): void {
    this.#after = version;
    this.#queue = this.#queue.filter((commit) => commit.version > version);
  }

  taken(count: number): void {
    this.#queue.splice(0, count);
  }

  #pull(): void {
    const commits = this.#commits;
    if (commits === undefined) return;
    commits.next().then((step) => {
      if (commits !== this.#commits) return;
      if (step.done) throw new KvError('KV_CLOSED', 'the database was closed');
      if (step.value.version > this.#after) {
        const commit = toLocal(step.value);
        this.#queue.push(commit);
        if (!commit.isOwn || this.#queue.length >= MAX_OWN_COMMITS) this.#onCommit();
      }
      this.#pull();
    }).catch((error: unknown) => {
      if (commits !== this.#commits) return;
      this.#failure = error;
      this.#onCommit();
    });
  }
}
