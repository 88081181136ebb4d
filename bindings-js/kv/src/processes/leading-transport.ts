// The transport of the handle that opened a shared database first: it uses the engine as if it had the
// database to itself, and serves all other handles beside that.
import { GroupCommit } from '../engine/group-commit.ts';
import { InThreadTransport } from '../engine/in-thread-transport.ts';
import type { InThreadOptions, InThreadStorage } from '../engine/in-thread-transport.ts';
import { KvError } from '../base/errors.ts';
import type { Release } from '../storage/os-lock.ts';
import { Leader } from '../tabs/leader.ts';
import { names } from '../tabs/messages.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';
import type { EngineOptions } from '../wire/contracts.ts';
import { DATABASE, ProcessEnvironment } from './environment.ts';
import type { Machine } from './machine.ts';
import { ServedEngine } from './served-engine.ts';

export class LeadingTransport extends InThreadTransport {
  readonly #environment: ProcessEnvironment;
  readonly #leader: Leader;
  /** What others asked while the engine was busy. */
  readonly #due: (() => void)[] = [];
  #isOver = false;

  /** `lock` is the directory's; it is released with the transport. */
  constructor(
    module: WebAssembly.Module,
    storage: InThreadStorage,
    engine: EngineOptions,
    machine: Machine,
    client: string,
    lock: Release,
    options: Omit<InThreadOptions, 'release'>,
  ) {
    super(module, storage, engine, { group: new GroupCommit(), ...options, release: () => {} });
    const served = new ServedEngine(this, true);
    const environment = new ProcessEnvironment(machine, client, unopened, (run) => this.#whenIdle(run), lock);
    const channel = environment.channel(names.all(DATABASE), (message) => {
      if (message.type === 'who') this.#leader.announce();
      else if (message.type === 'hello') this.#leader.hello(message.client, message.visible);
    });
    this.#environment = environment;
    if (environment.hub !== undefined) environment.hub.engine = served;
    try {
      this.host.beginInheritance();
      this.host.keepOpen(true);
      this.#leader = new Leader(
        environment,
        // Those of a leader that closed a moment ago go on with what they have open.
        { database: DATABASE, own: client, term: environment.time(), inherits: served.remembered().length > 0 },
        served,
        {
          announce: (message) => channel.post(message),
          toOwn: () => {},
          crashed: (error) => this.#crashed(error),
          visibility: () => {},
        },
      );
    } catch (error) {
      this.#isOver = true;
      try {
        super.dispose();
      } finally {
        void environment.end();
      }
      throw error;
    }
    this.#resigned = () => channel.post({ type: 'resign', term: this.#leader.term, heir: undefined });
    this.others = {
      wake: (sessions) => this.#leader.wakeClients(sessions),
      idle: () => this.#runDue(),
    };
  }

  readonly #resigned: () => void;

  get leader(): LeaderInfo | undefined {
    return this.#environment.leader;
  }

  clients(): Promise<readonly ClientInfo[]> {
    return this.#environment.clients();
  }

  override async dispose(): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    try {
      this.#leader.close(true);
    } finally {
      super.dispose();
      this.#resigned();
      await this.#environment.end();
    }
  }

  /** The engine stopped while it served another. */
  #crashed(error: KvError): void {
    this.events?.fail(error);
  }

  #whenIdle(run: () => void): void {
    if (this.isOccupied || this.#due.length > 0) this.#due.push(run);
    else run();
  }

  #runDue(): void {
    while (this.#due.length > 0 && !this.isOccupied) this.#due.shift()?.();
  }
}

function unopened(): Promise<never> {
  return Promise.reject(new KvError('KV_CLOSED', 'the engine is open already'));
}
