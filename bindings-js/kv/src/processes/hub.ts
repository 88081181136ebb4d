// The handle that leads, as the place where all others connect: it knows the members, delivers their
// messages to the leader and the leader's to them, and tells when a member has ended.
import { PROTOCOL } from '../tabs/messages.ts';
import type { Announcement, Exchange, Message } from '../tabs/messages.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';
import { checkMessage } from './check-message.ts';
import type { Introduction, LocalHub, Machine } from './machine.ts';
import { connectedPorts } from './port.ts';
import type { ServedEngine } from './served-engine.ts';
import type { Port } from './port.ts';

/** Messages that may be lost are, if so many bytes wait for the member. */
const MAX_LOSSY_BACKLOG_BYTES = 256 << 10;
const LOSSY: readonly Message['type'][] = ['wake', 'lead', 'opening'];
/** How often the hub looks whether processes that did not come back have ended. */
const LOOK_MS = 1000;

/** What the hub answers. */
export type Welcome =
  | ({ readonly type: 'welcome' } & LeaderInfo)
  | { readonly type: 'refused'; readonly reason: string };

interface Member extends ClientInfo {
  readonly client: string;
  readonly port: Port;
}

/** Apart from the protocol, a member asks who else is there. */
export interface ClientsMessage {
  readonly type: 'clients';
  readonly clients?: readonly ClientInfo[];
}

export class Hub implements LocalHub {
  readonly protocol = PROTOCOL;
  readonly #machine: Machine;
  readonly #members = new Map<string, Member>();
  readonly #channels = new Map<string, (message: Exchange) => void>();
  /** By client: called when it has ended. */
  readonly #gone = new Map<string, () => void>();
  /** The engine, for handles of this thread that use it directly. */
  engine: ServedEngine | undefined;
  /** Receives members' announcements. */
  onannouncement: (message: Announcement) => void = () => {};
  readonly #endLocal: () => void;
  #stopListening: (() => void) | undefined;
  /** Ends when it is decided whether others can connect. */
  #beginning: Promise<void> | undefined;
  #cancelLook: (() => void) | undefined;
  /** The newest announcement of the leader, until it is sent. */
  #lead: Announcement | undefined;
  #isClosed = false;
  readonly since: number;

  constructor(machine: Machine) {
    this.#machine = machine;
    this.since = machine.time();
    this.#endLocal = machine.setLocal(this);
  }

  get leader(): LeaderInfo {
    return { pid: this.#machine.pid, since: this.since };
  }

  /** Ids of the clients that are connected. */
  get members(): readonly string[] {
    return [...this.#members.keys()];
  }

  get clients(): readonly ClientInfo[] {
    return [...this.#members.values()].map(({ pid, title, since }) => ({ pid, title, since }));
  }

  /** Lets other threads and processes connect. Where that is impossible, the address says why. */
  async listen(): Promise<void> {
    if (this.#isClosed) return;
    this.#beginning = this.#listen();
    await this.#beginning;
    this.#beginning = undefined;
  }

  async #listen(): Promise<void> {
    const stop = await this.#machine.listen((port, introduction) => this.#accept(port, introduction));
    if (this.#isClosed) stop();
    else this.#stopListening = stop;
  }

  /** Connects a handle of this thread; `undefined` if it cannot be served. */
  join({ protocol, client, pid, title }: Introduction): Port | undefined {
    if (this.#isClosed || protocol !== PROTOCOL) return undefined;
    const [ours, theirs] = connectedPorts();
    this.#welcome({ client, pid, title, since: this.#machine.time(), port: ours });
    return theirs;
  }

  #accept(port: Port, { protocol, client, pid, title }: Introduction): string | undefined {
    if (protocol !== PROTOCOL) return `process ${this.#machine.pid} has a version of mangrove-kv with another protocol`;
    if (this.#isClosed) return `process ${this.#machine.pid} is closing the database`;
    this.#welcome({ client, pid, title, since: this.#machine.time(), port });
    return undefined;
  }

  #welcome(member: Member): void {
    const { client, port } = member;
    // It connected again, and its earlier end is not noticed yet.
    void this.#members.get(client)?.port.close();
    this.#members.set(client, member);
    port.onmessage = (value) => this.#receive(client, value, port);
    port.onclose = () => {
      if (this.#members.get(client) !== member) return;
      this.#members.delete(client);
      this.#end(client);
    };
    port.send({ type: 'welcome', ...this.leader } satisfies Welcome);
    this.onannouncement({ type: 'who', protocol: PROTOCOL, client });
  }

  #receive(client: string, value: unknown, port: Port): void {
    if ((value as Partial<ClientsMessage> | null)?.type === 'clients')
      return port.send({ type: 'clients', clients: this.clients } satisfies ClientsMessage);
    const message = checkMessage('toLeader', value);
    // Nobody speaks for another.
    if (message === undefined || ('client' in message && message.client !== client)) {
      void port.close();
      this.#members.delete(client);
      this.#end(client);
    } else if (message.type === 'who' || message.type === 'hello') {
      this.onannouncement(message);
    } else {
      this.#channels.get(client)?.(message as Exchange);
    }
  }

  /** Sends an announcement of the leader to all members; those within a turn are one. */
  announce(message: Announcement): void {
    if (message.type !== 'lead') return this.#send([...this.#members.values()], message);
    const isDue = this.#lead !== undefined;
    this.#lead = message;
    if (isDue) return;
    this.#machine.nextTurn(() => {
      const lead = this.#lead;
      this.#lead = undefined;
      if (lead !== undefined && !this.#isClosed) this.#send([...this.#members.values()], lead);
    });
  }

  send(client: string, message: Exchange): void {
    const member = this.#members.get(client);
    if (member !== undefined) this.#send([member], message);
  }

  #send(members: readonly Member[], message: Message): void {
    for (const { port } of members)
      if (port.backlog < MAX_LOSSY_BACKLOG_BYTES || !LOSSY.includes(message.type)) port.send(message);
  }

  /** Delivers what a member sends to the leader. Returns a function that ends that. */
  channel(client: string, receive: (message: Exchange) => void): () => void {
    this.#channels.set(client, receive);
    return () => {
      if (this.#channels.get(client) === receive) this.#channels.delete(client);
    };
  }

  /**
   * Calls `gone` when a client has ended: when its connection does or, if it has none, when its process
   * is known to have. Returns a function that cancels.
   */
  whenGone(client: string, gone: () => void): () => void {
    this.#gone.set(client, gone);
    if (!this.#members.has(client)) {
      this.#lookLater(0);
    }
    return () => {
      if (this.#gone.get(client) === gone) this.#gone.delete(client);
    };
  }

  #lookLater(ms: number): void {
    this.#cancelLook ??= this.#machine.after(ms, () => {
      this.#cancelLook = undefined;
      this.#lookForEnded();
    });
  }

  #lookForEnded(): void {
    let isLeft = false;
    for (const client of [...this.#gone.keys()]) {
      if (this.#members.has(client)) continue;
      if (this.#machine.mayLive(client)) isLeft = true;
      else this.#end(client);
    }
    if (isLeft && !this.#isClosed) this.#lookLater(LOOK_MS);
  }

  #end(client: string): void {
    const gone = this.#gone.get(client);
    this.#gone.delete(client);
    gone?.();
  }

  /**
   * Ends all connections, after what was sent before. Resolves when that has arrived. Calls `unlock` as
   * soon as the next leader can listen.
   */
  async close(unlock: () => void): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#endLocal();
    this.#cancelLook?.();
    this.#stopListening?.();
    const unlocked = this.#beginning?.then(unlock) ?? unlock();
    const members = [...this.#members.values()];
    this.#members.clear();
    this.#gone.clear();
    await Promise.all([unlocked, ...members.map(({ port }) => port.close())]);
  }
}
