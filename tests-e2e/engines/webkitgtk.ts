// Drives MiniBrowser, the browser that comes with WebKitGTK. WebDriver is no option, because its
// sessions are always private. Instead the page fetches functions from a server of the tests and
// posts back their results.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TYPES, fileOf } from '../http.ts';

const PATHS = [
  '/usr/lib/x86_64-linux-gnu/webkit2gtk-4.1/MiniBrowser',
  '/usr/lib/aarch64-linux-gnu/webkit2gtk-4.1/MiniBrowser',
];
const HARNESS = new URL('../harness/dist/', import.meta.url).pathname;
const REMOTE = `<script type="module">
  const { visit } = await (await fetch('/remote/visit')).json();
  for (;;) {
    const { id, body, argument } = await (await fetch('/remote/next?' + visit)).json();
    const answer = {};
    try {
      answer.value = await (0, eval)('(' + body + ')')(argument);
    } catch (error) {
      answer.error = String(error);
    }
    await fetch('/remote/done?' + id, { method: 'POST', body: JSON.stringify(answer) });
  }
</script>`;

export function findMiniBrowser(): string | undefined {
  return [process.env['MINIBROWSER_PATH'], ...PATHS].find(
    (path) => path !== undefined && path !== '' && existsSync(path),
  );
}

interface Call {
  readonly id: number;
  readonly body: string;
  readonly argument: unknown;
  settle(answer: { value?: unknown; error?: string }): void;
}

/** A page that executes functions on behalf of a test. */
export class Remote implements AsyncDisposable {
  readonly #server = createServer((request, response) => void this.#answer(request, response));
  readonly #calls = new Map<number, Call>();
  #waiting: Call[] = [];
  #page: ServerResponse | undefined;
  #visit = 0;
  #count = 0;
  #arrived: (() => void) | undefined;

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => {
      this.#server.listen(0, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  /** Resolves when the page is loaded next. */
  arrival(): Promise<void> {
    return new Promise((resolve) => {
      this.#arrived = resolve;
    });
  }

  evaluate<T, A = undefined>(run: (argument: A) => T | Promise<T>, argument?: A): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle: Call['settle'] = ({ value, error }) => {
        if (error === undefined) resolve(value as T);
        else reject(new Error(`in the page: ${error}`));
      };
      const call = { id: this.#count++, body: String(run), argument, settle };
      this.#calls.set(call.id, call);
      this.#waiting.push(call);
      this.#hand();
    });
  }

  async reload(): Promise<void> {
    const arrived = this.arrival();
    // The answer may be lost with the page.
    void this.evaluate(() => location.reload());
    await arrived;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => {
      this.#server.close(resolve);
    });
  }

  #hand(): void {
    if (this.#page === undefined) return;
    const call = this.#waiting.shift();
    if (call === undefined) return;
    const { id, body, argument } = call;
    sendJson(this.#page, { id, body, argument });
    this.#page = undefined;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, search } = new URL(request.url ?? '/', 'http://localhost');
    const number = Number(search.slice(1));
    if (pathname === '/remote/visit') {
      this.#page = undefined;
      sendJson(response, { visit: ++this.#visit });
      this.#arrived?.();
    } else if (pathname === '/remote/next') {
      if (number !== this.#visit) return void response.writeHead(410).end();
      this.#page = response;
      this.#hand();
    } else if (pathname === '/remote/done') {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      response.end();
      this.#calls
        .get(number)
        ?.settle(JSON.parse(Buffer.concat(parts).toString()) as { value?: unknown; error?: string });
      this.#calls.delete(number);
    } else await sendFile(pathname, response);
  }
}

function sendJson(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

async function sendFile(path: string, response: ServerResponse): Promise<void> {
  try {
    const { file, type } = fileOf(HARNESS, path);
    const bytes = await readFile(file);
    response
      .writeHead(200, { 'content-type': type })
      .end(type === TYPES['.html'] ? bytes.toString().replace('</body>', `${REMOTE}</body>`) : bytes);
  } catch {
    response.writeHead(404).end();
  }
}

/** A browser with its own data directory and display. */
export class MiniBrowser implements AsyncDisposable {
  readonly #directory: string;
  readonly #display: string;
  readonly #xvfb: ChildProcess;
  #browser: ChildProcess | undefined;

  private constructor(directory: string, display: string, xvfb: ChildProcess) {
    this.#directory = directory;
    this.#display = display;
    this.#xvfb = xvfb;
  }

  static async create(): Promise<MiniBrowser> {
    const xvfb = spawn(
      process.env['XVFB_PATH'] ?? 'Xvfb',
      ['-displayfd', '3', '-screen', '0', '800x600x24', '-nolisten', 'tcp'],
      { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] },
    );
    const display = await new Promise<string>((resolve, reject) => {
      xvfb.once('error', reject);
      xvfb.stdio[3]?.once('data', (data) => resolve(String(data).trim()));
    });
    return new MiniBrowser(await mkdtemp(join(tmpdir(), 'mangrove-webkitgtk-')), display, xvfb);
  }

  start(url: string, ...args: string[]): void {
    const path = findMiniBrowser();
    if (path === undefined) throw new Error('no MiniBrowser: apt-get install libwebkit2gtk-4.1-0 xvfb');
    const env = {
      ...process.env,
      DISPLAY: `:${this.#display}`,
      GDK_BACKEND: 'x11',
      GSETTINGS_BACKEND: 'memory',
      LIBGL_ALWAYS_SOFTWARE: '1',
      NO_AT_BRIDGE: '1',
      HOME: this.#directory,
      XDG_DATA_HOME: this.#directory,
      XDG_CACHE_HOME: this.#directory,
      XDG_CONFIG_HOME: this.#directory,
    };
    this.#browser = spawn(path, [...args, url], { env, stdio: 'ignore' });
  }

  async stop(): Promise<void> {
    await end(this.#browser);
    this.#browser = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await end(this.#xvfb);
    await rm(this.#directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => {
    child.once('exit', resolve);
  });
  child.kill();
  await ended;
}
