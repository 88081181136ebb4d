// The commits of the database that are not in the outbox yet, read without waiting.
import { KvError, valueCodecs } from 'mangrove-kv';
import type { Commit, Database } from 'mangrove-kv';
import type { ReplicationChangesOptions, ReplicationCommits } from 'mangrove-kv/internal';
import type { ReplicaState } from './state.ts';
import { STATE_COLLECTION } from './tables.ts';
import { isHidden } from './visibility.ts';

type Raw = Commit<Uint8Array, Uint8Array>;

/** A commit of the application, or one of replication, of which only the log's position that it states is kept. */
export type LocalCommit =
  | { readonly version: number; readonly changes: Raw['changes']; readonly isOwn?: undefined }
  | { readonly version: number; readonly base: number | undefined; readonly isOwn: true };

/** Commits of replication that are kept until the application commits. */
const MAX_OWN_COMMITS = 256;
/** `peek` reads no further than so many. */
export const MAX_COMMITS = 1024;
/**
 * Commits of a burst gather for so long. After a commit of the application nothing is read either,
 * unless somebody asks: many at once take less time than one after the other, and the application's
 * commits are not held up by it. The feed keeps what comes meanwhile.
 */
export const GATHER_MS = 100;

/** Every commit of replication writes its state, and no other does. */
function toLocal({ version, changes }: Raw): LocalCommit {
  const row = changes.find(({ collection }) => collection === STATE_COLLECTION);
  if (row === undefined) return { version, changes };
  const base = row.type === 'set' ? valueCodecs.json<ReplicaState>().decode(row.value).cursor.position : undefined;
  return { version, base, isOwn: true };
}

export class LocalFeed {
  readonly #db: Database;
  readonly #newest: () => Promise<number>;
  readonly #onCommit: () => void;
  #commits: ReplicationCommits<Uint8Array, Uint8Array> | undefined;
  #queue: LocalCommit[] = [];
  #failure: unknown;
  /** Ends the rest after a commit of the application. */
  #rest: ReturnType<typeof setTimeout> | undefined;
  /** How many calls want everything that there is. */
  #peeks = 0;
  /** Everything up to this version was read. */
  #read = -1;
  /** How often it was asked how far that is. */
  #reports = 0;
  /** Called when something was read, or nothing more will be. */
  #onStep: (() => void)[] = [];
  /** Commits up to this version are not of interest. */
  #after = -1;

  /**
   * `newest` asks for the database's version. `onCommit` is called when there is a commit of the
   * application, when many of replication are there, or a reason why there cannot be one.
   */
  constructor(db: Database, newest: () => Promise<number>, onCommit: () => void) {
    this.#db = db;
    this.#newest = newest;
    this.#onCommit = onCommit;
  }

  /** Starts, or starts anew, after a commit; by default with the next one. */
  start(since?: number): void {
    this.stop();
    this.#queue = [];
    this.#failure = undefined;
    this.#read = this.#after = since ?? -1;
    const options: ReplicationChangesOptions = {
      ...(since !== undefined && { since }),
      raw: true,
      only: STATE_COLLECTION,
    };
    this.#commits = this.#db.changes(options) as ReplicationCommits<Uint8Array, Uint8Array>;
    this.#pull();
  }

  stop(): void {
    clearTimeout(this.#rest);
    this.#rest = undefined;
    this.#commits?.return().catch(() => undefined);
    this.#commits = undefined;
    this.#stepped();
  }

  /** Whether the application has committed since. */
  get hasCommits(): boolean {
    return this.#queue.some(({ isOwn }) => !isOwn);
  }

  /** Whether the database may have more than was read, and this feed will not tell it. */
  get hasFailed(): boolean {
    return this.#failure !== undefined;
  }

  /** Whether it is time to take what was read. */
  get isDue(): boolean {
    return this.hasCommits || this.#queue.length >= MAX_OWN_COMMITS || this.hasFailed;
  }

  /**
   * What is there now; if that is much, the front of it. A view: `taken` removes from its front.
   * With a version: throws unless it is everything up to that, or `MAX_COMMITS` of it. Otherwise
   * what the feed had before it failed comes first.
   */
  async peek(version?: number): Promise<readonly LocalCommit[]> {
    this.#peeks++;
    if (this.#rest !== undefined) this.#readOn();
    try {
      const newest = version ?? (await this.#newest());
      const commits = this.#commits;
      const isOver = (): boolean =>
        this.#read >= newest ||
        this.#failure !== undefined ||
        this.#queue.length >= MAX_COMMITS ||
        commits !== this.#commits;
      // The second report is certainly of what there is after this call.
      for (const reports = this.#reports + 2; commits !== undefined && !isOver() && this.#reports < reports; ) {
        commits.look();
        await new Promise<void>((resolve) => this.#onStep.push(resolve));
      }
    } finally {
      this.#peeks--;
    }
    if (this.#failure !== undefined && this.#queue.length === 0) throw this.#failure;
    // The feed has failed behind what it has, or was stopped, or the database has lost that version.
    if (version !== undefined && this.#read < version && this.#queue.length < MAX_COMMITS)
      throw this.#failure ?? new KvError('KV_TRUNCATED_FEED', `the feed ends before version ${version}`);
    return this.#queue;
  }

  #stepped(): void {
    for (const resolve of this.#onStep.splice(0)) resolve();
  }

  #readOn(): void {
    clearTimeout(this.#rest);
    this.#rest = undefined;
    this.#pull();
  }

  #readLater(): void {
    this.#rest = setTimeout(() => this.#readOn(), GATHER_MS);
    (this.#rest as { unref?: () => void }).unref?.();
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
    commits
      .next()
      .then((step) => {
        if (commits !== this.#commits) return;
        if (step.done) throw new KvError('KV_CLOSED', 'the database was closed');
        this.#read = Math.max(this.#read, step.value.version);
        if (step.value.changes.length === 0) this.#reports++;
        else if (step.value.version > this.#after) {
          const commit = toLocal(step.value);
          this.#queue.push(commit);
          if (!commit.isOwn || this.#queue.length >= MAX_OWN_COMMITS) this.#onCommit();
          if (!commit.isOwn && this.#peeks === 0 && !isHidden()) return this.#readLater();
        }
        this.#stepped();
        this.#pull();
      })
      .catch((error: unknown) => {
        if (commits !== this.#commits) return;
        this.#failure = error;
        this.#stepped();
        this.#onCommit();
      });
  }
}
