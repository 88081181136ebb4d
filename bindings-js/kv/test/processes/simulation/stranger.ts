// A process that knows the token, but not how to behave. It must not harm anybody, and loses its connection.
import type { Port } from '../../../src/processes/port.ts';
import { PROTOCOL } from '../../../src/tabs/messages.ts';
import type { Random } from '../../tabs/random.ts';
import { SimulatedMachine } from './machine.ts';
import type { Process } from './process.ts';
import type { World } from './world.ts';

const term = 1_800_000_000_000;
const message = new Uint8Array(0);

/** What it says; `victim` is the name of another client. */
function nonsense(victim: string, own: string): readonly object[] {
  return [
    {},
    { type: 'constructor' },
    { type: 'wanted' },
    { type: 'resign', term },
    { type: 'lead', protocol: PROTOCOL, term, client: own, version: 0 },
    { type: 'who', protocol: PROTOCOL, client: victim },
    { type: 'hello', protocol: PROTOCOL, term, client: victim, visible: true },
    { type: 'hello', protocol: PROTOCOL - 1, term, client: own, visible: true },
    { type: 'hello', protocol: PROTOCOL, term, client: own },
    { type: 'request', term: -1, seq: 1, message },
    { type: 'request', term, seq: 0.5, message },
    { type: 'request', term, seq: 1, message: 'text' },
    { type: 'request', term, seq: 1, message, hello: { state: 1, readOnly: false } },
    { type: 'visible', term, visible: null },
  ];
}

export class Stranger {
  readonly process: Process;
  readonly #id: string;
  readonly #nonsense: object;
  readonly #protocol: number;
  #wasWelcome = false;
  /** It was refused, or its connection ended. */
  isOut = false;

  constructor(process: Process, victim: string, random: Random) {
    this.process = process;
    this.#id = `${process.pid}.stranger`;
    this.#nonsense = random.pick(nonsense(victim, this.#id));
    this.#protocol = random.chance(0.8) ? PROTOCOL : PROTOCOL + 1;
  }

  /** It was taken as a member that it cannot be. */
  get isWrongIn(): boolean {
    return this.#wasWelcome && this.#protocol !== PROTOCOL;
  }

  async start(world: World): Promise<void> {
    const { address } = world;
    const introduction = { protocol: this.#protocol, client: this.#id, pid: this.process.pid, title: 'stranger' };
    if (address?.socket === undefined) {
      this.isOut = true;
      return;
    }
    let port: Port;
    try {
      port = await new SimulatedMachine(world, this.process).connect(address, introduction);
    } catch {
      this.isOut = true;
      return;
    }
    port.onclose = () => {
      this.isOut = true;
    };
    port.onmessage = (first) => {
      port.onmessage = () => {};
      this.#wasWelcome = (first as { readonly type?: unknown }).type === 'welcome';
      if (this.#wasWelcome) port.send(this.#nonsense);
    };
  }
}
