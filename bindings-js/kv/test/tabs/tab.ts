// A simulated tab: its page, and what it notices of the world.
import type { Message } from '../../src/tabs/messages.ts';
import { Peer } from '../../src/tabs/peer.ts';
import type { Event } from './events.ts';
import { Page } from './page.ts';
import { DATABASE } from './world.ts';
import type { World } from './world.ts';

export class Tab extends Page {
  readonly world: World;
  readonly peer: Peer;
  readonly deadlineMs: number;
  isAlive = true;
  isFrozen = false;
  /** It entered the back/forward cache before it could release anything. */
  isKept = false;
  isVisible: boolean;
  /** It is in the back/forward cache, or on the way there. */
  isHidden = false;
  /** Events that were due while it was frozen. */
  readonly deferred: Event[] = [];
  ranSince = 0;
  frozenAt = 0;
  /**
   * End of its last freeze of over two heartbeats, after which it cannot tell whether the leader
   * was silent.
   */
  sleptUntil = -Infinity;
  /**
   * When the world last delivered a message from a leader, or from a tab that opens the files or
   * releases them.
   */
  heardLeaderAt = -Infinity;
  #newestTerm = 0;
  heardItselfAt = -Infinity;
  stoleAt = -Infinity;
  steals = 0;
  constructor(
    world: World,
    id: string,
    options: { visible?: boolean; exclusive?: boolean; deadlineMs?: number; isAgain?: boolean },
  ) {
    super(id);
    this.world = world;
    this.deadlineMs = options.deadlineMs ?? 5000;
    this.isVisible = options.visible ?? true;
    this.ranSince = world.now;
    const peerOptions = {
      database: DATABASE,
      title: DATABASE,
      id,
      isAgain: options.isAgain ?? false,
      readOnly: false,
      exclusive: options.exclusive ?? false,
      deadlineMs: this.deadlineMs,
    };
    this.peer = new Peer(world.environmentOf(this), peerOptions, this.events());
    this.peer.setVisible(this.isVisible);
  }

  /** Whether requests can be pushed. */
  get isOpen(): boolean {
    return this.isAlive && !this.isLeaving && this.failure === undefined && !this.isHidden && !this.isFrozen;
  }

  start(): void {
    this.peer.start();
  }

  protected override send(message: Uint8Array): void {
    this.peer.client.push(message);
  }

  setVisible(isVisible: boolean): void {
    this.world.say(() => `${this.id} becomes ${isVisible ? '' : 'in'}visible`);
    this.isVisible = isVisible;
    this.peer.setVisible(isVisible);
  }

  hide(): void {
    this.world.say(() => `${this.id} hides`);
    this.isHidden = true;
    this.peer.hide();
  }

  show(): void {
    this.world.say(() => `${this.id} is shown`);
    this.world.thaw(this);
    this.isHidden = false;
    if (this.peer.role === 'away') this.heardLeaderAt = -Infinity;
    this.peer.show();
  }

  leave(): void {
    this.world.say(() => `${this.id} leaves`);
    this.isLeaving = true;
    this.peer.leave();
  }

  heard(message: Message): void {
    if ('client' in message && message.client === this.id) {
      this.heardItselfAt = this.world.now;
    } else if (['opening', 'resign', 'lead', 'ready', 'reply', 'crashed', 'wake'].includes(message.type)) {
      const term = 'term' in message ? message.term : this.#newestTerm;
      // A leader's message may arrive after another tab, possibly this one, has succeeded that
      // leader.
      if (term < this.#newestTerm) return;
      this.#newestTerm = term;
      this.heardLeaderAt = this.world.now;
    }
  }

  /** Checks the invariants that hold after each step. */
  check(): void {
    if (!this.isAlive) return;
    const { role } = this.peer;
    if (this.world.holds(this) && role !== 'leader' && role !== 'opening')
      this.world.violate(`${this.id} has the files and is ${role}`);
    if (this.hasLeft && role !== 'gone') this.world.violate(`${this.id} left and is ${role}`);
    if (this.isFrozen || this.isHidden) return;
    const oldest = this.pending[0];
    if (oldest === undefined) return;
    const waitedMs = this.world.now - Math.max(oldest.at, this.ranSince);
    this.maxWaitMs = Math.max(waitedMs, this.maxWaitMs);
  }
}
