// From the database's commits to the log: through the outbox.
import type { Database, KvError, Transaction } from 'mangrove-kv';
import { isSnapshotLost } from 'mangrove-kv/internal';
import { captureCommits, captureFound } from './capture.ts';
import type { Captured } from './capture.ts';
import type { LocalCommits } from './local-commits.ts';
import { LocalFeed, MAX_COMMITS } from './local-feed.ts';
import type { LocalCommit } from './local-feed.ts';
import { Mutex } from './mutex.ts';
import type { Link, ReplicaContext, Work } from './replica-context.ts';
import { materialize, scan } from './scan.ts';
import type { Sender } from './sender.ts';
import { UNCOMPARED, decodeOutbox } from './state.ts';
import type { ReplicaState } from './state.ts';
import { fenced } from './strict-records.ts';
import type { StrictRecords } from './strict-records.ts';
import type { KnownTable } from './tables.ts';

/** Everything has to be compared before this commit can be made. */
class Uncompared extends Error {}
/** More has been committed than one commit takes. */
class Backlog extends Error {}

export class Outgoing {
  readonly #context: ReplicaContext;
  readonly #local: LocalCommits;
  readonly #link: Link;
  readonly #sender: Sender;
  readonly #strict: StrictRecords;
  readonly #isExclusive: boolean;
  readonly #feed: LocalFeed;
  /** What is captured, one commit after the other. */
  readonly #turns = new Mutex();
  #isRescanNeeded = false;
  /** The feed has what was committed since the last start of replication. */
  #isFed = false;
  #drained = 0;
  /** The log's position that was applied at the last commit taken from the feed. */
  #base: number | undefined;
  /** The last commit taken from the feed. */
  #version = -1;
  /** Writes past replication up to this version may have been undone. */
  #undone = -1;
  /** Records may be in the outbox that a power cut would take back. */
  #isRelaxed = false;
  /** See `ReplicaState.removedUntil`. */
  #removedUntil = Infinity;

  constructor(context: ReplicaContext, sender: Sender, strict: StrictRecords, isExclusive: boolean) {
    const { db } = context.local.tables;
    this.#context = context;
    this.#local = context.local;
    this.#link = context.link;
    this.#sender = sender;
    this.#strict = strict;
    this.#isExclusive = isExclusive;
    this.#feed = new LocalFeed(
      db,
      () => versionOf(db),
      () => context.events.changed(),
    );
  }

  /** Goes on after the commit `drained`; negative, or if there `isNew` collections are: with everything that the database has. */
  start(drained: number, isNew: boolean): void {
    this.#isRescanNeeded = isNew || drained < 0;
    this.#isFed = drained >= 0;
    this.#undone = isNew ? Math.min(drained, -1) : drained;
    if (this.#isFed) this.#feed.start(drained);
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
    return this.#isRescanNeeded || this.#feed.isDue || this.#removedUntil > this.#context.clock();
  }

  /** Puts local commits into the outbox; resolves to whether more were there when it was called. */
  drain(): Promise<boolean> {
    return this.#turns.run(async () => {
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
      this.#removedUntil = (await this.#local.recall()).removedUntil;
      // A clock that was ahead may be right again.
      if (length === 0 && this.#removedUntil <= this.#context.clock()) return false;
      await this.#capture(commits.slice(0, MAX_COMMITS));
      return length >= MAX_COMMITS || this.#isRescanNeeded || this.#feed.hasFailed;
    });
  }

  /** See `Advance`. */
  advance<T>(durability: 'strict' | 'relaxed', work: Work<T>): Promise<T> {
    return this.#turns.run(async () => {
      for (;;) {
        while (this.#isRescanNeeded) await this.#rescan();
        try {
          return await this.#captured(durability, work);
        } catch (error) {
          if (!(error instanceof Uncompared)) throw error;
        }
      }
    });
  }

  /** Captures all that was committed before in the same commit. */
  async #captured<T>(durability: 'strict' | 'relaxed', work: Work<T>): Promise<T> {
    for (;;) {
      try {
        return await this.#change(
          durability,
          async (tx) => {
            const version = await tx.baseVersion;
            const commits = await this.#peek(version);
            if (commits === undefined) throw new Uncompared();
            if (commits.length >= MAX_COMMITS) throw new Backlog();
            return commits.filter((commit) => commit.version <= version);
          },
          work,
        );
      } catch (error) {
        if (!(error instanceof Backlog)) throw error;
        await this.#capture(((await this.#peek()) ?? []).slice(0, MAX_COMMITS));
      }
    }
  }

  /** False if everything has to be compared first. */
  async #capture(commits: readonly LocalCommit[]): Promise<boolean> {
    return this.#change(
      'strict',
      async () => commits,
      async (_, state) => ({ state, result: true }),
    ).catch((error: unknown) => {
      if (!(error instanceof Uncompared)) throw error;
      return false;
    });
  }

  /**
   * A comparison finds neither transactions nor what was written to a collection while it was out of
   * sight: before one, what the feed has is taken from it.
   */
  async #captureFed(): Promise<void> {
    while (this.#isFed) {
      const commits = (await this.#peek()) ?? [];
      this.#isFed = commits.length > 0 && (await this.#capture(commits.slice(0, MAX_COMMITS)));
    }
  }

  /** Takes commits from the front of the feed, and does more in the same commit. */
  async #change<T>(
    durability: 'strict' | 'relaxed',
    commits: (tx: Transaction) => Promise<readonly LocalCommit[]>,
    work: Work<T>,
  ): Promise<T> {
    let captured: Captured | undefined;
    let taken: readonly LocalCommit[] = [];
    let base = 0;
    const result = await this.#local.change(durability, async (tx, state) => {
      taken = await commits(tx);
      // Commits that were looked at since, and needed no commit themselves.
      const from = this.#base === undefined ? state : { ...state, drainedBase: this.#base };
      captured = await captureCommits(tx, this.#local.tables, from, taken, this.#context.clock(), this.#context.blobs);
      if (captured.isRescanNeeded) {
        this.#isRescanNeeded = true;
        throw new Uncompared();
      }
      if (captured.state.nextTicket !== state.nextTicket && durability === 'relaxed') this.#isRelaxed = true;
      const { state: next, result: done } = await work(tx, captured.state);
      // What the work changes is not what those commits have met: after a restart they must not be looked at again.
      // What is committed beside the beginning of another history has met nothing of that.
      base = next.rejoin === 'lost' && next.history !== captured.state.history ? 0 : captured.base;
      return {
        state:
          next === from ? state : { ...next, drained: Math.max(captured.drained, this.#version), drainedBase: base },
        result: done,
      };
    });
    const { state, count, drained, violations } = captured as unknown as Captured;
    this.#base = base;
    this.#removedUntil = state.removedUntil;
    this.#version = Math.max(this.#version, drained);
    for (const { isOwn } of taken) if (isOwn !== true) this.#drained++;
    this.#feed.taken(count);
    if (violations.length > 0) this.#undone = (taken.at(-1) as LocalCommit).version;
    for (const violation of violations) this.#context.events.alarm(violation);
    return result;
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
    const { tables } = this.#local;
    await this.#captureFed();
    // From before the snapshot on: a database without a feed does not keep what was committed since.
    this.#feed.start();
    const snapshot = tables.db.snapshot();
    try {
      const version = await snapshot.version;
      this.#undone = version;
      const state = (await snapshot.collection(tables.state).get('state')) as ReplicaState;
      const base = state.cursor.position;
      const slices = scan(tables, snapshot, state, this.#context.clock());
      let slice = await slices.next();
      for (; slice.done !== true; slice = await slices.next()) {
        const found = slice.value;
        const violations = await this.#local.change('strict', async (tx, before) => {
          const { state: next, violations: result } = await captureFound(
            tx,
            tables,
            before,
            found,
            base,
            this.#context.clock(),
            this.#context.blobs,
          );
          // If it is interrupted the next start compares again: the feed may have what was found.
          return { state: { ...next, drained: Math.min(next.drained, UNCOMPARED) }, result };
        });
        for (const violation of violations) this.#context.events.alarm(violation);
      }
      const removedUntil = Math.max(state.removedUntil, slice.value);
      this.#base = base;
      this.#version = version;
      this.#feed.skipTo(version);
      const added = newlyKnown(tables.byName.values(), state);
      const known = Object.fromEntries([...tables.byName.values()].map(({ name, declaration }) => [name, declaration]));
      // From here on their commits are captured. They stay hidden until their entries are there: a start after a death goes on.
      await this.#local.change('strict', async (_, before) => {
        const hidden = [...new Set([...before.hidden, ...added.map(({ name }) => name)])];
        return {
          state: {
            ...before,
            collections: { ...before.collections, ...known },
            hidden,
            drained: Math.max(version, before.drained),
            drainedBase: base,
            removedUntil,
          },
          result: undefined,
        };
      });
      for (const table of added) await materialize(tables, table, (work) => this.#captured('relaxed', work));
      if (added.length > 0)
        await this.#local.change('strict', async (_, before) => ({
          state: { ...before, hidden: before.hidden.filter((name) => !tables.byName.has(name)) },
          result: undefined,
        }));
      this.#isRescanNeeded = false;
    } catch (error) {
      // A collection was renamed meanwhile: once more.
      if (!(error instanceof Uncompared)) throw error;
    } finally {
      await snapshot.close();
    }
  }

  /** Sends the next record of the outbox; resolves to whether there was one. */
  async publish(signal?: AbortSignal): Promise<boolean> {
    if (!this.#link.isCaughtUp || !this.#link.isChecked) return false;
    if (this.#link.isFenced) throw fenced();
    const { connections } = this.#link;
    if (!(await this.#strict.finishOpen(signal))) return false;
    // Nothing has a ticket after the one that was sent.
    if ((await this.#local.recall()).nextTicket <= this.#link.sent + 1) return false;
    const [next, stored] = await Promise.all([
      this.#local.tables.outbox.first({ gt: this.#link.sent }),
      this.#local.state(),
    ]);
    if (next === undefined) return false;
    const [ticket, bytes] = next;
    const row = decodeOutbox(bytes);
    if (row.expect !== undefined) return this.#strict.finish(ticket, signal);
    if (stored.rejoin !== undefined) return false;
    if (this.#isRelaxed) {
      // A record that was sent must not be lost here: another one would get its number.
      this.#isRelaxed = false;
      await this.#local.change('strict', async (_, state) => ({ state: { ...state }, result: undefined }));
      return true;
    }
    const expect = this.#isExclusive ? Math.max(this.#link.end, stored.cursor.position) : undefined;
    const position = await this.#sender.append(stored, ticket, row, expect, signal).catch(async (error: unknown) => {
      if ((error as Partial<KvError>).code !== 'KV_LOG_CONFLICT') throw error;
      // Somebody else has written: the new owner of the log, or a device that does not know of fences.
      this.#link.end = 0;
      await this.#context.catchUp(signal);
      return undefined;
    });
    if (position === undefined) return true;
    this.#link.end = Math.max(this.#link.end, position);
    // Meanwhile the device may have got another id, under which the record has not been sent.
    if ((await this.#local.recall()).device !== stored.device || connections !== this.#link.connections) return true;
    this.#link.sent = ticket;
    this.#link.acknowledged.set(ticket, position);
    return true;
  }

  /**
   * Whether a snapshot of a version, with commits up to `drained` in the outbox, may have writes to
   * strict collections that went past replication: they are undone, or were undone since.
   */
  async isDisturbed(version: number, drained: number): Promise<boolean> {
    const commits = this.#isRescanNeeded ? undefined : await this.#peek(version);
    return (
      commits === undefined ||
      commits.length >= MAX_COMMITS ||
      this.#undone > drained ||
      commits.some(
        (commit) =>
          commit.version <= version &&
          !commit.isOwn &&
          commit.changes.some((change) => this.#local.tables.isStrictChange(change)),
      )
    );
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

/** Collections that the program that replicated last did not know. */
function newlyKnown(known: Iterable<KnownTable>, { collections, hidden }: ReplicaState): KnownTable[] {
  return [...known].filter(({ name }) => !Object.hasOwn(collections, name) || hidden.includes(name));
}
