// From the database's commits to the log: through the outbox.
import type { KvError } from '../base/errors.ts';
import { isSnapshotLost } from '../base/superseded.ts';
import type { Database } from '../types/index.ts';
import { captureFound, drainCommits, scan } from './drain.ts';
import type { LocalCommits } from './local-commits.ts';
import { LocalFeed, MAX_COMMITS } from './local-feed.ts';
import type { LocalCommit } from './local-feed.ts';
import type { Link, Parts } from './parts.ts';
import { decodeOutbox } from './rows.ts';
import type { Sender } from './sender.ts';
import { fenced } from './strict-records.ts';
import type { StrictRecords } from './strict-records.ts';
import { Unread } from './unread.ts';

export class Outgoing {
  readonly #parts: Parts;
  readonly #local: LocalCommits;
  readonly #link: Link;
  readonly #sender: Sender;
  readonly #strict: StrictRecords;
  readonly #isExclusive: boolean;
  readonly #feed: LocalFeed;
  #isRescanNeeded = false;
  #drained = 0;
  /** The log's position that was applied at the last commit taken from the feed. */
  #base: number | undefined;
  /** Writes past sync up to this version may have been undone. */
  #undone = -1;

  constructor(parts: Parts, sender: Sender, strict: StrictRecords, isExclusive: boolean) {
    const { db } = parts.local.tables;
    this.#parts = parts;
    this.#local = parts.local;
    this.#link = parts.link;
    this.#sender = sender;
    this.#strict = strict;
    this.#isExclusive = isExclusive;
    this.#feed = new LocalFeed(db, () => versionOf(db), () => parts.events.changed());
  }

  /** Goes on after the commit `drained`; negative: with everything that the database has. */
  start(drained: number): void {
    this.#isRescanNeeded = drained < 0;
    this.#undone = drained;
    if (!this.#isRescanNeeded) this.#feed.start(drained);
  }

  stop(): void {
    this.#feed.stop();
  }

  /** How many commits of the application were looked at. */
  get drained(): number {
    return this.#drained;
  }

  /** Whether there are local commits that are not in the outbox, as far as is known. */
  get hasCommits(): boolean {
    return this.#feed.hasCommits;
  }

  /** Whether `drain` has something to do, as far as is known: `changed` was called for it. */
  get isDrainDue(): boolean {
    return this.#isRescanNeeded || this.#feed.isDue;
  }

  /** Puts local commits into the outbox; resolves to whether more were there when it was called. */
  async drain(): Promise<boolean> {
    if (!await this.#strict.finishOpen()) return false;
    if (this.#isRescanNeeded) {
      // If the tab that kept the snapshot is gone, the next call rescans.
      await this.#rescan().catch((error: unknown) => {
        if (!isSnapshotLost(error)) throw error;
      });
      return true;
    }
    const commits = await this.#peek();
    if (commits === undefined) return true;
    const { length } = commits;
    if (length === 0) return false;
    const batch = commits.slice(0, MAX_COMMITS);
    const { count, base, violations, isRescanNeeded } = await this.#local.change('strict', async (tx, state) => {
      // Commits that were looked at since, and needed no commit themselves.
      const from = this.#base === undefined ? state : { ...state, drainedBase: this.#base };
      const { state: next, result } = await drainCommits(tx, this.#local.tables, from, batch, this.#parts.clock(), this.#parts.blobs);
      return { state: next === from ? state : next, result };
    });
    this.#base = base;
    for (const { isOwn } of batch.slice(0, count)) if (isOwn !== true) this.#drained++;
    this.#feed.taken(count);
    if (isRescanNeeded) this.#isRescanNeeded = true;
    if (violations.length > 0) this.#undone = (batch[count - 1] as typeof batch[number]).version;
    for (const violation of violations) this.#parts.events.alarm(violation);
    return length > count || length >= MAX_COMMITS || isRescanNeeded;
  }

  /** See `Parts.unread`. */
  async unread(version: number): Promise<Unread> {
    // A rescan finds what is left of lost commits; what was set and deleted again leaves no trace.
    return new Unread(await this.#peek(version));
  }

  /** Undefined: some commits are lost, so everything has to be compared. */
  async #peek(version?: number): Promise<readonly LocalCommit[] | undefined> {
    try {
      return await this.#feed.peek(version);
    } catch (error) {
      if ((error as Partial<KvError>).code !== 'KV_TRUNCATED_FEED') throw error;
      this.#isRescanNeeded = true;
      return undefined;
    }
  }

  async #rescan(): Promise<void> {
    // From before the snapshot on: a database without a feed does not keep what was committed since.
    this.#feed.start();
    const snapshot = this.#local.tables.db.snapshot();
    try {
      const version = await snapshot.version;
      this.#undone = version;
      const base = (await snapshot.collection(this.#local.tables.state).get('state'))?.cursor.position ?? 0;
      for await (const found of scan(this.#local.tables, snapshot, version, this.#parts.clock())) {
        const violations = await this.#local.change('strict', (tx, state) => captureFound(tx, this.#local.tables, state, found, base, this.#parts.clock(), this.#parts.blobs));
        for (const violation of violations) this.#parts.events.alarm(violation);
      }
      await this.#local.change('strict', async (_, state) => ({ state: { ...state, drained: version, drainedBase: base }, result: undefined }));
      this.#base = base;
      this.#feed.skipTo(version);
      this.#isRescanNeeded = false;
    } finally {
      await snapshot.close();
    }
  }

  /** Sends the next record of the outbox; resolves to whether there was one. */
  async publish(signal?: AbortSignal): Promise<boolean> {
    if (!this.#link.isCaughtUp) return false;
    if (this.#link.isFenced) throw fenced();
    if (!await this.#strict.finishOpen(signal)) return false;
    // Nothing has a ticket after the one that was sent.
    if ((await this.#local.recall()).nextTicket <= this.#link.sent + 1) return false;
    const [next, stored] = await Promise.all([this.#local.tables.outbox.first({ gt: this.#link.sent }), this.#local.state()]);
    if (next === undefined) return false;
    const [ticket, bytes] = next;
    const row = decodeOutbox(bytes);
    if (row.expect !== undefined) return this.#strict.finish(ticket, signal);
    const state = await this.#sender.withOffset(stored, ticket);
    if (state === undefined) return true;
    if (state.rejoin !== undefined) return false;
    const expect = this.#isExclusive ? Math.max(this.#link.end, state.cursor.position) : undefined;
    const position = await this.#sender.append(state, ticket, row, expect, signal).catch(async (error: unknown) => {
      if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
      // Somebody else has written: the new owner of the log, or a device that does not know of fences.
      this.#link.end = 0;
      while (await this.#parts.pull(signal));
      return undefined;
    });
    if (position === undefined) return true;
    this.#link.end = Math.max(this.#link.end, position);
    // Meanwhile the device may have got another id, under which the record has not been sent.
    if ((await this.#local.recall()).device !== state.device) return true;
    this.#link.sent = ticket;
    this.#link.acknowledged.set(ticket, position);
    return true;
  }

  /**
   * Whether a snapshot of a version, with commits up to `drained` in the outbox, may have writes to
   * strict collections that went past sync: they are undone, or were undone since.
   */
  async isDisturbed(version: number, drained: number): Promise<boolean> {
    const commits = await this.#peek();
    return commits === undefined || this.#undone > drained || commits.some((commit) => commit.version <= version && !commit.isOwn
      && commit.changes.some((change) => this.#local.tables.isStrictChange(change)));
  }
}

async function versionOf(db: Database): Promise<number> {
  const snapshot = db.snapshot();
  try {
    return await snapshot.version;
  } finally {
    snapshot.close().catch(() => undefined);
  }
}
