// A TCP proxy that can cut its connections, or keep them and let nothing through.
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

  #join(near: Socket, target: number): void {
    if (this.#state === 'cut') {
      near.destroy();
      return;
    }
    const far = connect(target, '127.0.0.1');
    for (const [from, to] of [[near, far], [far, near]] as const) {
      this.#sockets.add(from);
      from.setNoDelay(true);
      from.on('data', (bytes) => {
        this.bytes += bytes.length;
        if (!to.destroyed && !(this.#state === 'deaf' && from === far)) to.write(bytes);
      });
      from.on('error', () => undefined);
      from.on('close', () => {
        this.#sockets.delete(from);
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

/** Ports that are free now. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(Array.from({ length: count }, async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return server;
  }));
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}
