// Simulated files, and a model of the engine with the properties that the protocol relies on: a
// commit and its client's row are stored in one atomic step, and a crash can occur between any two
// steps.
import type { LeaderEngine } from '../../src/tabs/environment.ts';
import type { Cut } from '../../src/wire/transport.ts';
import { LOST, OPERATION_BYTES, UNKNOWN, VERSIONS, decode, encodeOutcomes, isWrite, kinds } from './operations.ts';
import type { Operation } from './operations.ts';

/**
 * A row of the client table: the outcomes of the writes of the client's last message that wrote.
 */
interface Row {
  readonly seq: number;
  readonly outcomes: readonly number[];
}

interface Commit {
  readonly id: number;
  readonly outcome: number;
  readonly client: string;
  /** The client's row before this commit. */
  readonly before: Row | undefined;
}

/** Observes what happens to the files, and collects violations. */
export interface Observer {
  committed(id: number): void;
  /** A crash lost a commit. */
  undone(id: number, outcome: number): void;
  /** The row of a client was deleted. */
  forgot(client: string): void;
  violate(what: string): void;
}

export class Store {
  readonly commits: Commit[] = [];
  readonly #done = new Map<number, number>();
  readonly rows = new Map<string, Row>();
  counter = 0;
  /** Number of commits that survive a crash. */
  stored = 0;
  readonly #observer: Observer;

  constructor(observer: Observer) {
    this.#observer = observer;
  }

  get version(): number {
    return this.commits.length;
  }

  outcomeOf(id: number): number | undefined {
    return this.#done.get(id);
  }

  commit(operation: Operation, client: string, seq: number): number {
    const { id, kind } = operation;
    if (this.#done.has(id)) this.#observer.violate(`operation ${id} of ${client} is done twice`);
    const before = this.rows.get(client);
    const outcome = kind === kinds.increment ? ++this.counter * VERSIONS + this.version + 1 : this.version + 1;
    this.commits.push({ id, outcome, client, before });
    this.#done.set(id, outcome);
    const outcomes = before?.seq === seq ? [...before.outcomes, outcome] : [outcome];
    // One without a name is not asked again.
    if (client !== '') this.rows.set(client, { seq, outcomes });
    this.#observer.committed(id);
    return outcome;
  }

  /** Drops the last `count` commits. */
  lose(count: number): void {
    for (let i = 0; i < count; i++) {
      const { id, outcome, client, before } = this.commits.pop()!;
      if (outcome >= VERSIONS) this.counter--;
      this.#done.delete(id);
      if (before === undefined) this.rows.delete(client);
      else this.rows.set(client, before);
      this.#observer.undone(id, outcome);
    }
  }
}

interface Snapshot {
  readonly handle: number;
  readonly version: number;
  /** Id of the last commit, which tells this version from another of the same number. */
  readonly last: number | undefined;
  isLost: boolean;
}

interface Session {
  readonly client: string;
  readonly readOnly: boolean;
  nextHandle: number;
  snapshots: Snapshot[];
  /** The version up to which its follower has read; undefined if it does not follow. */
  followed: number | undefined;
  isTold: boolean;
  isDirty: boolean;
  /** Whether `lastState` was called. */
  isOver: boolean;
}

/** Decides how an engine fails. */
export interface Fate {
  /** Called before and after each operation, such as a commit. Throws to crash the engine. */
  step(): void;
  /** How many of the `count` commits not yet stored a crash loses. */
  losesOf(count: number): number;
  /**
   * Returns whether commits are stored later, and if so calls `stored` then. Otherwise they are
   * stored at once.
   */
  later(stored: () => void): boolean;
  /** Whether the reply has no room for another outcome. */
  isFull(): boolean;
  /** Whether closing fails. */
  failsToClose(): boolean;
}

interface Settling {
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

export class ModelEngine implements LeaderEngine {
  readonly #store: Store;
  readonly #observer: Observer;
  readonly #fate: Fate;
  readonly #letGoOfFiles: () => void;
  readonly #sessions = new Map<number, Session>();
  #nextSession = 1;
  readonly #openedAt: number;
  readonly #openedLast: number | undefined;
  #mayInherit = true;
  #isGone = false;
  #isClosed = false;
  #isDead = false;
  state: Uint8Array<ArrayBuffer> | undefined;
  cut: Cut | undefined;
  wakes: readonly number[] = [];
  #settling: Settling[] = [];

  constructor(store: Store, observer: Observer, fate: Fate, letGoOfFiles: () => void) {
    this.#store = store;
    this.#observer = observer;
    this.#fate = fate;
    this.#letGoOfFiles = letGoOfFiles;
    this.#openedAt = store.version;
    this.#openedLast = store.commits.at(-1)?.id;
  }

  get version(): number {
    return this.#store.version;
  }

  attach(client: string, state: Uint8Array | undefined, readOnly: boolean): number {
    this.#live();
    const session: Session = {
      client,
      readOnly,
      nextHandle: 1,
      snapshots: [],
      followed: undefined,
      isTold: false,
      isDirty: false,
      isOver: false,
    };
    if (state !== undefined) this.#restore(session, state);
    this.#sessions.set(this.#nextSession, session);
    return this.#nextSession++;
  }

  #restore(session: Session, state: Uint8Array): void {
    // An empty state means that what was open was lost with the previous worker.
    if (state.length === 0) return;
    const saved = JSON.parse(new TextDecoder().decode(state)) as Pick<
      Session,
      'nextHandle' | 'snapshots' | 'followed'
    > & { client: string };
    if (saved.client !== session.client)
      this.#observer.violate(`${session.client} presents the state of ${saved.client}`);
    session.nextHandle = saved.nextHandle;
    session.followed = saved.followed;
    for (const snapshot of saved.snapshots) {
      const isKept =
        !snapshot.isLost &&
        this.#mayInherit &&
        snapshot.version === this.#openedAt &&
        snapshot.last === this.#openedLast;
      if (isKept !== !snapshot.isLost) session.isDirty = true;
      session.snapshots.push({ ...snapshot, isLost: !isKept });
    }
  }

  detach(session: number): void {
    this.#live();
    if (!this.#sessions.delete(session)) this.#observer.violate(`session ${session} is not open`);
  }

  execute(message: Uint8Array, number: number, seq: number): Uint8Array<ArrayBuffer> {
    this.#live();
    const session = this.#sessions.get(number);
    if (session === undefined) throw new Error(`session ${number} is not open`);
    if (session.isOver)
      this.#observer.violate(`${session.client} is served after its state was taken for the last time`);
    const outcomes: number[] = [];
    const row = this.#store.rows.get(session.client);
    const known = row?.seq === seq ? row.outcomes : [];
    let writes = 0;
    this.cut = undefined;
    try {
      for (const [requests, operation] of decode(message).entries()) {
        // What was committed under this number must not be asked for under another one.
        if (requests > 0 && writes >= known.length && this.#fate.isFull()) {
          this.cut = { at: requests * OPERATION_BYTES, requests };
          break;
        }
        if (isWrite(operation) && writes < known.length) {
          outcomes.push(known[writes++]!);
          continue;
        }
        this.#fate.step();
        if (isWrite(operation)) writes++;
        outcomes.push(this.#do(session, operation, seq));
        this.#fate.step();
      }
    } catch (error) {
      this.#crash();
      throw error;
    }
    this.#settle();
    this.state = this.#takeState(session);
    this.wakes = this.#takeWakes();
    return encodeOutcomes(outcomes);
  }

  #do(session: Session, operation: Operation, seq: number): number {
    const { version } = this.#store;
    switch (operation.kind) {
      case kinds.append:
      case kinds.increment:
        return this.#store.commit(operation, session.client, seq);
      case kinds.read:
        return version;
      case kinds.openSnapshot:
        session.isDirty = true;
        session.snapshots.push({
          handle: session.nextHandle,
          version,
          last: this.#store.commits.at(-1)?.id,
          isLost: false,
        });
        return session.nextHandle++ * VERSIONS + version;
      case kinds.readSnapshot: {
        const snapshot = session.snapshots.find(({ handle }) => handle === operation.handle);
        if (snapshot === undefined) return UNKNOWN;
        return snapshot.isLost ? LOST : snapshot.version;
      }
      case kinds.closeSnapshot:
        session.isDirty = true;
        session.snapshots = session.snapshots.filter(({ handle }) => handle !== operation.handle);
        return 0;
      case kinds.follow:
      case kinds.poll:
        session.isDirty ||= session.followed !== version;
        session.followed = version;
        session.isTold = false;
        return version;
      case kinds.poison:
        throw new Error('poisoned');
    }
  }

  lastState(number: number): Uint8Array<ArrayBuffer> | undefined {
    this.#live();
    const session = this.#sessions.get(number);
    if (session === undefined) return undefined;
    session.isDirty = true;
    session.isOver = true;
    return this.#takeState(session);
  }

  #takeState(session: Session): Uint8Array<ArrayBuffer> | undefined {
    if (!session.isDirty) return undefined;
    session.isDirty = false;
    const { client, nextHandle, snapshots, followed } = session;
    return new TextEncoder().encode(JSON.stringify({ client, nextHandle, snapshots, followed }));
  }

  settled(): Promise<void> | undefined {
    if (this.#store.stored === this.#store.version) return undefined;
    // Not a real promise: everything must run within the simulation's events.
    const then = (done: () => void, failed: (error: unknown) => void): void => {
      this.#settling.push({ done, failed });
    };
    return { then } as unknown as Promise<void>;
  }

  #settle(): void {
    const { version } = this.#store;
    if (this.#store.stored === version) return;
    const isLater = this.#fate.later(() => {
      if (this.#isGone || this.#isClosed) return;
      this.#store.stored = Math.max(this.#store.stored, version);
      if (this.#store.stored === this.#store.version) for (const { done } of this.#settling.splice(0)) done();
    });
    if (!isLater) this.#store.stored = version;
  }

  #takeWakes(): number[] {
    const wakes = [];
    for (const [number, session] of this.#sessions) {
      if (session.followed !== undefined && !session.isTold && session.followed < this.#store.version) {
        session.isTold = true;
        wakes.push(number);
      }
    }
    return wakes;
  }

  remembered(): string[] {
    this.#live();
    return [...this.#store.rows.keys()];
  }

  forget(client: string): void {
    this.#live();
    this.#store.rows.delete(client);
    this.#observer.forgot(client);
  }

  endInheritance(): void {
    this.#live();
    this.#mayInherit = false;
  }

  close(): void {
    if (this.#isClosed) return this.#observer.violate('an engine is closed twice');
    this.#isClosed = true;
    if (!this.#isGone && !this.#fate.failsToClose()) {
      this.#store.stored = this.#store.version;
      this.#letGoOfFiles();
      return;
    }
    this.#loseUnstored();
    this.#letGoOfFiles();
    throw new Error('the engine could not finish');
  }

  dispose(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#loseUnstored();
    this.#letGoOfFiles();
  }

  /** The engine ends with its tab. */
  die(): void {
    if (!this.#isClosed) this.#loseUnstored();
    this.#isDead = this.#isGone = this.#isClosed = true;
  }

  #crash(): void {
    this.#isGone = true;
  }

  #loseUnstored(): void {
    const unstored = this.#store.version - this.#store.stored;
    if (unstored > 0) this.#store.lose(this.#fate.losesOf(unstored));
    this.#store.stored = this.#store.version;
  }

  #live(): void {
    if (this.#isClosed && !this.#isDead) this.#observer.violate('an engine is used after it was closed');
    if (this.#isGone) throw new Error('the engine is gone');
  }
}
