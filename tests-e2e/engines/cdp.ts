// Drives Chromium without Playwright. Playwright tells pages that they are always visible and
// focused, and such pages are never frozen.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { launchOptions } from '../browser.ts';

type Fields = Record<string, unknown>;

export class Cdp implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, { resolve(value: Fields): void; reject(error: Error): void }>();
  #calls = 0;

  constructor(directory: string) {
    const args = [
      '--headless=new',
      '--remote-debugging-pipe',
      `--user-data-dir=${directory}`,
      ...(launchOptions.args ?? []),
      'about:blank',
    ];
    this.#process = spawn(launchOptions.executablePath as string, args, {
      stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    });
    let rest = '';
    (this.#process.stdio[4] as Readable).setEncoding('utf8').on('data', (text: string) => {
      const parts = (rest + text).split('\0');
      rest = parts.pop() ?? '';
      for (const part of parts)
        this.#hear(JSON.parse(part) as { id?: number; result?: Fields; error?: { message: string } });
    });
  }

  send(method: string, params: Fields = {}, sessionId?: string): Promise<Fields> {
    const id = ++this.#calls;
    (this.#process.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
    });
  }

  async newPage(url: string): Promise<CdpPage> {
    const { targetId } = await this.send('Target.createTarget', { url, newWindow: true });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new CdpPage(this, String(sessionId));
    await page.evaluate(
      'new Promise((done) => document.readyState === "complete" ? done() : addEventListener("load", done))',
    );
    return page;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise((resolve) => {
      this.#process.once('exit', resolve);
    });
    this.#process.kill();
    await ended;
  }

  #hear({ id, result, error }: { id?: number; result?: Fields; error?: { message: string } }): void {
    if (id === undefined) return;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error === undefined) waiting?.resolve(result ?? {});
    else waiting?.reject(new Error(error.message));
  }
}

export class CdpPage {
  readonly #cdp: Cdp;
  readonly #session: string;

  constructor(cdp: Cdp, session: string) {
    this.#cdp = cdp;
    this.#session = session;
  }

  send(method: string, params?: Fields): Promise<Fields> {
    return this.#cdp.send(method, params, this.#session);
  }

  async evaluate<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
    return (result as { value: T }).value;
  }

  call<T>(worker: string, command: string, argument: object = {}): Promise<T> {
    return this.evaluate(`call(${JSON.stringify(worker)}, ${JSON.stringify(command)}, ${JSON.stringify(argument)})`);
  }
}
