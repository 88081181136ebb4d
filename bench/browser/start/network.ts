// A server behind a slow connection: every byte of every response, to the page and to its workers,
// passes one link of limited rate, and each request waits a round trip.
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { brotliCompressSync } from 'node:zlib';

export interface Link {
  readonly roundTripMs: number;
  readonly bytesPerSecond: number;
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.wasm': 'application/wasm',
  '.css': 'text/css',
};
const CHUNK = 2048;

export class SlowServer implements AsyncDisposable {
  readonly #root: string;
  readonly #server: Server;
  readonly #packed = new Map<string, Buffer>();
  readonly #known = new WeakSet<Socket>();
  /** When the link has sent all that was given to it. */
  #freeAt = 0;
  link: Link | undefined;
  /** Paths and bytes in the order in which they were asked for. */
  readonly sent: { path: string; bytes: number; atMs: number }[] = [];
  #startedAt = 0;

  private constructor(root: string) {
    this.#root = root;
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => response.destroy(error as Error));
    });
  }

  static async listen(root: string): Promise<SlowServer> {
    const slow = new SlowServer(root);
    slow.#server.listen(0, '127.0.0.1');
    await once(slow.#server, 'listening');
    return slow;
  }

  get url(): string {
    return `http://localhost:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Forgets what was sent. */
  restart(link: Link | undefined): void {
    this.link = link;
    this.sent.length = 0;
    this.#freeAt = 0;
    this.#startedAt = performance.now();
    this.#server.closeAllConnections();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = normalize(new URL(request.url ?? '/', this.url).pathname);
    const body = await this.#body(path);
    if (body === undefined) {
      response.writeHead(404).end();
      return;
    }
    const { link } = this;
    this.sent.push({ path, bytes: body.length, atMs: performance.now() - this.#startedAt });
    if (link !== undefined) {
      // A new connection has taken a round trip before its first request.
      await wait(link.roundTripMs * (this.#known.has(request.socket) ? 1 : 2));
      this.#known.add(request.socket);
    }
    response.writeHead(200, {
      'content-type': TYPES[extname(path)] ?? 'application/octet-stream',
      'content-encoding': 'br',
      'content-length': body.length,
      'cache-control': 'max-age=600',
    });
    for (let at = 0; at < body.length; at += CHUNK) {
      const part = body.subarray(at, at + CHUNK);
      if (link !== undefined) {
        const now = performance.now();
        this.#freeAt = Math.max(this.#freeAt, now) + (part.length / link.bytesPerSecond) * 1000;
        if (this.#freeAt - now > 1) await wait(this.#freeAt - now);
      }
      response.write(part);
    }
    response.end();
  }

  async #body(path: string): Promise<Buffer | undefined> {
    let packed = this.#packed.get(path);
    if (packed === undefined) {
      const plain = await readFile(join(this.#root, path)).catch(() => undefined);
      if (plain === undefined) return undefined;
      packed = brotliCompressSync(plain);
      this.#packed.set(path, packed);
    }
    return packed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
