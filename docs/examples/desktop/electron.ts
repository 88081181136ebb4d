// The part of Electron that the example needs, over processes of Node: Electron is not installed here, and
// no test runs it. In a program of Electron, import `utilityProcess` from 'electron' in its place, and use
// `process.parentPort`, which has the same calls.
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';

export class UtilityProcess {
  readonly #child: ChildProcess;

  constructor(child: ChildProcess) {
    this.#child = child;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  postMessage(message: unknown): void {
    this.#child.send(message as object);
  }

  on(event: 'message', listener: (message: unknown) => void): this;
  on(event: 'exit', listener: (code: number) => void): this;
  on(event: 'message' | 'exit', listener: (value: never) => void): this {
    this.#child.on(event, listener as (value: unknown) => void);
    return this;
  }

  kill(): boolean {
    return this.#child.kill();
  }
}

export const utilityProcess = {
  fork: (module: string, args: readonly string[] = []): UtilityProcess => new UtilityProcess(fork(module, args)),
};

export const parentPort = {
  postMessage: (message: unknown): void => void process.send?.(message),
  on: (_event: 'message', listener: (event: { readonly data: unknown }) => void): void =>
    void process.on('message', (data) => listener({ data })),
};
