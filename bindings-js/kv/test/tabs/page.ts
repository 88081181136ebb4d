// The page of a simulated client, with checks of what it may expect of the protocol.
import type { KvError } from '../../src/base/errors.ts';
import type { TraceDetail } from '../../src/base/trace.ts';
import type { PageEvents } from '../../src/tabs/environment.ts';
import type { Ledger } from './ledger.ts';
import { LOST, VERSIONS, decodeOutcomes, encode, isWrite, kinds } from './operations.ts';
import type { Kind, Operation } from './operations.ts';

export interface Pushed {
  readonly operations: readonly Operation[];
  readonly at: number;
  /** The newest commit acknowledged to any tab when this was pushed. */
  readonly acknowledged: number;
  outcomes?: readonly number[];
  /** Those of the pieces of a reply so far. */
  readonly pieces: number[];
  refused?: KvError;
}

export abstract class Page {
  abstract readonly world: Ledger;
  readonly id: string;
  abstract readonly isAlive: boolean;
  /** `leave` was called. */
  isLeaving = false;
  /** The error that ended it. */
  failure: KvError | undefined;
  hasLeft = false;
  openings = 0;
  readonly blocked: string[] = [];
  readonly traces: TraceDetail[] = [];
  readonly backgroundErrors: KvError[] = [];
  /** Unanswered messages, in the order in which they were pushed. */
  readonly pending: Pushed[] = [];
  /** Versions of open snapshots by handle. */
  readonly snapshots = new Map<number, number>();
  lostSnapshots = 0;
  /** The version up to which its follower has read; undefined if it does not follow. */
  followed: number | undefined;
  /** The client was woken and has not read yet. */
  hasWakes = false;
  maxWaitMs = 0;

  constructor(id: string) {
    this.id = id;
  }

  protected abstract send(message: Uint8Array<ArrayBuffer>): void;

  push(...what: readonly (Kind | { readonly kind: Kind; readonly handle: number })[]): Pushed {
    const operations = what.map((one) => ({
      handle: 0,
      id: this.world.nextId(),
      ...(typeof one === 'number' ? { kind: one } : one),
    }));
    const pushed: Pushed = { operations, at: this.world.now, acknowledged: this.world.acknowledged, pieces: [] };
    this.world.say(
      () => `${this.id} asks ${operations.map(({ id, kind, handle }) => `${id}:${kind}/${handle}`).join(' ')}`,
    );
    for (const { kind, handle } of operations) if (kind === kinds.closeSnapshot) this.snapshots.delete(handle);
    this.pending.push(pushed);
    this.send(encode(operations));
    return pushed;
  }

  protected events(): PageEvents {
    const { world } = this;
    const ifAlive =
      <A extends unknown[]>(run: (...parameters: A) => void) =>
      (...parameters: A): void => {
        if (!this.isAlive) return;
        if (this.hasLeft || this.failure !== undefined) world.violate(`${this.id} receives an event after its end`);
        run(...parameters);
      };
    return {
      joined: ifAlive(() => {}),
      opened: ifAlive(() => {
        if (++this.openings > 1) world.violate(`${this.id} opened twice`);
      }),
      reply: ifAlive((bytes: Uint8Array, count: number, requests?: number) => this.#replied(bytes, count, requests)),
      refuse: ifAlive((error: KvError, count: number) => this.#refused(error, count)),
      trace: ifAlive((detail: TraceDetail) => {
        this.traces.push(detail);
      }),
      wake: ifAlive(() => {
        this.hasWakes = true;
      }),
      blocked: ifAlive((reason: string) => {
        this.blocked.push(reason);
      }),
      backgroundError: ifAlive((error: KvError) => {
        this.backgroundErrors.push(error);
      }),
      failed: ifAlive((error: KvError) => {
        world.say(() => `${this.id} failed: ${error.code}`);
        world.counts.failed++;
        this.failure = error;
        this.pending.length = 0;
      }),
      left: ifAlive(() => {
        world.say(() => `${this.id} left`);
        this.hasLeft = true;
        if (!this.isLeaving) world.violate(`${this.id} left without being told to`);
        if (this.pending.length > 0) world.violate(`${this.id} left with ${this.pending.length} unanswered messages`);
      }),
    };
  }

  #replied(bytes: Uint8Array, count: number, requests?: number): void {
    if (this.openings === 0) this.world.violate(`${this.id} receives a reply before it is open`);
    if (count > this.pending.length)
      return this.world.violate(`${this.id} receives ${count} replies to ${this.pending.length} messages`);
    const outcomes = decodeOutcomes(bytes);
    const isPiece = count === 0;
    const answered = isPiece ? this.pending : this.pending.splice(0, count);
    const left = answered.flatMap((pushed) =>
      pushed.operations.slice(pushed.pieces.length).map((operation) => ({ pushed, operation })),
    );
    const asked = left.slice(0, isPiece ? requests : left.length);
    this.world.say(
      () =>
        `${this.id} receives ${isPiece ? 'a piece of ' : ''}the reply to ${asked.map(({ operation }) => operation.id).join(' ')}: ${outcomes.join(' ')}`,
    );
    if (outcomes.length !== asked.length)
      return this.world.violate(`${this.id} receives ${outcomes.length} outcomes of ${asked.length} operations`);
    for (const [i, { pushed, operation }] of asked.entries()) {
      pushed.pieces.push(outcomes[i]!);
      this.#outcome(pushed, operation, outcomes[i]!);
    }
    if (isPiece) return;
    for (const pushed of answered) {
      this.world.counts.acknowledged++;
      pushed.outcomes = pushed.pieces;
    }
  }

  #outcome({ acknowledged }: Pushed, operation: Operation, outcome: number): void {
    const { world } = this;
    if (isWrite(operation)) return world.promiseDone(operation.id, outcome);
    switch (operation.kind) {
      case kinds.read:
        if (outcome < acknowledged)
          world.violate(`${this.id} reads version ${outcome} though ${acknowledged} was acknowledged before`);
        return;
      case kinds.openSnapshot:
        if (this.snapshots.has(Math.floor(outcome / VERSIONS)))
          world.violate(`${this.id} has two snapshots ${outcome}`);
        this.snapshots.set(Math.floor(outcome / VERSIONS), outcome % VERSIONS);
        return;
      case kinds.readSnapshot:
        return this.#readSnapshot(operation.handle, outcome);
      case kinds.follow:
      case kinds.poll:
        if (outcome < (this.followed ?? 0))
          world.violate(`${this.id} follows from ${this.followed ?? 0} back to ${outcome}`);
        this.followed = outcome;
        return;
      default:
    }
  }

  #readSnapshot(handle: number, outcome: number): void {
    // The page may have closed it in the meantime.
    if (!this.snapshots.has(handle)) return;
    if (outcome === LOST) {
      this.lostSnapshots++;
      this.snapshots.delete(handle);
      return;
    }
    const known = this.snapshots.get(handle);
    if (known !== outcome)
      this.world.violate(`${this.id} reads ${outcome} in snapshot ${handle}, whose version is ${known}`);
  }

  #refused(error: KvError, count: number): void {
    this.world.say(() => `${this.id} is refused ${count}: ${error.code} ${error.message}`);
    if (count > this.pending.length)
      return this.world.violate(`${this.id} is refused ${count} of ${this.pending.length} messages`);
    for (const pushed of this.pending.splice(0, count)) {
      this.world.counts.refused++;
      pushed.refused = error;
      if (error.retryable)
        for (const operation of pushed.operations.slice(pushed.pieces.length))
          if (isWrite(operation)) this.world.promiseNotDone(operation.id);
    }
  }
}
