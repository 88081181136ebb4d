// A TCP proxy that can cut its connections, or keep them and let nothing through.
import { randomInt } from 'node:crypto';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** `deaf`: what the server answers is lost. */
export type LinkState = 'open' | 'cut' | 'silent' | 'deaf';

export class Link {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #state: LinkState = 'open';
  /** Bytes in both directions. */
  bytes = 0;
  /** How many more bytes of answers are let through; the others wait. */
  #answerBytes = Infinity;
  readonly #held = new Map<Socket, Buffer>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static async to(target: number, port = 0): Promise<Link> {
    const server = createServer();
    const link = new Link(server);
    server.on('connection', (near) => link.#join(near, target));
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    return link;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  set(state: LinkState): void {
    this.#state = state;
    for (const socket of this.#sockets) {
      if (state === 'cut') socket.destroy();
      else if (state === 'silent') socket.pause();
      else socket.resume();
    }
  }

  /** Holds back answers after so many more bytes. */
  holdAnswers(after: number): void {
    this.#answerBytes = after;
  }

  /** Lets more of the answers through. */
  releaseAnswers(bytes = Infinity): void {
    this.#answerBytes += bytes;
    for (const [near, held] of [...this.#held]) {
      this.#held.delete(near);
      this.#answer(near, held);
    }
  }

  #answer(near: Socket, bytes: Buffer): void {
    const passed = Math.min(this.#answerBytes, bytes.length);
    this.#answerBytes -= passed;
    if (passed > 0) near.write(bytes.subarray(0, passed));
    if (passed < bytes.length)
      this.#held.set(near, Buffer.concat([this.#held.get(near) ?? Buffer.alloc(0), bytes.subarray(passed)]));
  }

  #join(near: Socket, target: number): void {
    if (this.#state === 'cut') {
      near.destroy();
      return;
    }
    const far = connect(target, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(from);
      from.setNoDelay(true);
      from.on('data', (bytes) => {
        this.bytes += bytes.length;
        if (to.destroyed || (this.#state === 'deaf' && from === far)) return;
        if (from === far) this.#answer(near, bytes);
        else to.write(bytes);
      });
      from.on('error', () => undefined);
      from.on('close', () => {
        this.#sockets.delete(from);
        this.#held.delete(from);
        to.destroy();
      });
      if (this.#state === 'silent') from.pause();
    }
  }

  async close(): Promise<void> {
    this.set('cut');
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

/** Below the ephemeral range, from which the kernel could assign a port before the server binds it. */
const FIRST_PORT = 10_000;
const LAST_PORT = 32_000;

/** Ports that are free now. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = new Map<number, Server>();
  while (servers.size < count) {
    const port = randomInt(FIRST_PORT, LAST_PORT);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) =>
      server.on('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true)),
    );
    if (isFree) servers.set(port, server);
  }
  await Promise.all([...servers.values()].map((server) => new Promise((resolve) => server.close(resolve))));
  return [...servers.keys()];
}
