// A connection between simulated processes, as a socket is: ordered and reliable, until an end is
// delivered like a message. Of a process that is killed, what its system had taken is still delivered.
import { FrameReader, MAX_FRAME_BYTES, encodeFrame } from '../../../src/processes/frames.ts';
import type { Port } from '../../../src/processes/port.ts';
import type { Process } from './process.ts';
import type { World } from './world.ts';

/** Messages that the system takes, though the receiver does not read. */
const TAKEN = 3;
/** As which each other counts. Far more than it has: schedules are short. */
const BACKLOG_BYTES = 256 << 10;
const MAX_LOSSY_BACKLOG_BYTES = 256 << 10;
const LINGER_MS = 1000;
const LOSSY = ['wake', 'lead', 'opening'];

type Item = Buffer | 'end';

export class End implements Port {
  onmessage: Port['onmessage'] = () => {};
  onclose: Port['onclose'] = () => {};
  readonly process: Process;
  readonly #world: World;
  #other!: End;
  /** Sent and not delivered. */
  #sent: Item[] = [];
  isClosed = false;
  /** The last request, unless the leader has asked who this is since. */
  #request: string | undefined;
  #hasEnded = false;
  #closed: (() => void) | undefined;

  private constructor(world: World, process: Process) {
    this.#world = world;
    this.process = process;
    process.ends.add(this);
  }

  static pair(world: World, one: Process, other: Process): readonly [End, End] {
    const ends = [new End(world, one), new End(world, other)] as const;
    ends[0].#other = ends[1];
    ends[1].#other = ends[0];
    return ends;
  }

  get backlog(): number {
    return Math.max(0, this.#sent.length - TAKEN) * BACKLOG_BYTES;
  }

  send(message: object): void {
    if (!this.#world.survives(this.process) || this.isClosed) return;
    const { type, term, seq } = message as { readonly type?: string; readonly term?: number; readonly seq?: number };
    if (type === 'request') this.#note(`${term}/${seq}`);
    if (this.backlog >= MAX_LOSSY_BACKLOG_BYTES && LOSSY.includes(type ?? ''))
      this.#world.violate(`${this.process.name} keeps more and more for ${this.#other.process.name}`);
    this.#world.counts.messages++;
    this.#world.say(() => `${this.process.name} to ${this.#other.process.name}: ${describe(message)}`);
    this.#put(Buffer.concat(encodeFrame(message)));
  }

  #note(request: string): void {
    if (this.#request === request) this.#world.violate(`${this.process.name} sends again what will arrive`);
    this.#request = request;
  }

  #put(item: Item): void {
    this.#sent.push(item);
    this.#world.later(this.#world.delay(), this.#other.process, () => this.#deliver());
  }

  /** Delivers the first that was sent, whichever event comes first. */
  #deliver(): void {
    const item = this.#sent.shift();
    if (item === undefined) return;
    if (this.#sent.length <= TAKEN) this.#closed?.();
    if (item === 'end') return this.#other.#end();
    if (this.#other.isClosed) return;
    const reader = new FrameReader();
    reader.maxBytes = MAX_FRAME_BYTES;
    for (const message of reader.read(item)) {
      this.#world.say(() => `  ${this.#other.process.name} hears ${describe(message as object)}`);
      if ((message as { readonly type?: string }).type === 'ready') this.#other.#request = undefined;
      this.#other.onmessage(message);
    }
  }

  #end(): void {
    this.#hasEnded = true;
    this.process.ends.delete(this);
    this.#closed?.();
    if (this.isClosed) return;
    this.isClosed = true;
    this.#world.say(() => `  ${this.process.name} notices the end of a connection to ${this.#other.process.name}`);
    this.onclose();
    // The system tells the other end.
    this.#put('end');
  }

  close(): Promise<void> {
    if (this.isClosed || !this.#world.survives(this.process)) return Promise.resolve();
    this.isClosed = true;
    this.process.ends.delete(this);
    this.#put('end');
    if (this.#hasEnded || this.#sent.length <= TAKEN) return Promise.resolve();
    return new Promise((resolve) => {
      this.#closed = resolve;
      this.#world.later(LINGER_MS, this.process, () => {
        this.#forgetUntaken();
        resolve();
      });
    });
  }

  /** The process has ended. */
  die(): void {
    this.isClosed = true;
    this.#put('end');
    this.#forgetUntaken();
  }

  #forgetUntaken(): void {
    if (this.#sent.length > TAKEN + 1) this.#sent = [...this.#sent.slice(0, TAKEN), 'end'];
  }
}

function describe(message: object): string {
  return JSON.stringify(message, (key, value: unknown) => {
    if (value instanceof Uint8Array) return `${value.length} bytes`;
    return key === 'protocol' || key === 'title' ? undefined : value;
  });
}
