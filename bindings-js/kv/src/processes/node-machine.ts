// This machine, as Node, Deno and Bun show it: the system's lock, and Unix sockets or named pipes.
import * as fs from 'node:fs';
import { performance, setImmediate } from '../base/platform.ts';
import { describeHolder, isSilent } from '../storage/lock-file.ts';
import { attemptTo } from '../storage/node-fs.ts';
import { tryLockDirectory } from '../storage/node-lock.ts';
import type { Release } from '../storage/os-lock.ts';
import { PROTOCOL } from '../tabs/messages.ts';
import { Awake } from '../wire/spin.ts';
import { newToken, publishAddress, readAddress, removeSocket, socketPath } from './address.ts';
import { mayLive } from './client-id.ts';
import type { Accept, Address, Introduction, LocalHub, Machine } from './machine.ts';
import { SocketPort } from './port.ts';
import type { Port } from './port.ts';

/** How long a process that connects may take to introduce itself. */
const INTRODUCTION_MS = 5000;
/** An introduction has to be short. */
const MAX_TITLE_LENGTH = 200;

/**
 * The hubs of this thread, by directory, also those of other copies of the package, which a hot reload
 * makes. The number is incremented with each incompatible change of `LocalHub`.
 */
const HERE: unique symbol = Symbol.for('mangrove-kv.hubs.1') as never;
const here = globalThis as { [HERE]?: Map<string, LocalHub> };

function isIntroduction(value: unknown): value is Introduction & { readonly token: string } {
  const { token, protocol, client, pid, title } = (value ?? {}) as Partial<Introduction & { readonly token: string }>;
  return (
    [token, client, title].every((text) => typeof text === 'string') &&
    [protocol, pid].every((number) => Number.isSafeInteger(number))
  );
}

export class NodeMachine implements Machine {
  readonly pid = process.pid;
  readonly directory: string;
  readonly #takeOver: boolean;
  readonly mayLive = mayLive;
  readonly now = performance.now.bind(performance);

  /** `path` is that of an existing directory. */
  constructor(path: string, takeOver: boolean) {
    // All handles of this thread have to mean the same hub.
    this.directory = fs.realpathSync(path);
    this.#takeOver = takeOver;
  }

  get title(): string {
    return process.title.slice(0, MAX_TITLE_LENGTH);
  }

  time(): number {
    return Date.now();
  }

  after(ms: number, run: () => void): () => void {
    const timer = setTimeout(run, ms);
    (timer as { unref?: () => void }).unref?.();
    return () => clearTimeout(timer);
  }

  nextTurn(run: () => void): void {
    (setImmediate ?? setTimeout)(run);
  }

  tryLock(): Release | undefined {
    return attemptTo(`lock ${this.directory}`, () => tryLockDirectory(this.directory, this.#takeOver));
  }

  holder(): { readonly text: string; readonly isSilent: boolean } {
    return { text: describeHolder(this.directory), isSilent: isSilent(this.directory) };
  }

  local(): LocalHub | undefined {
    const hub = here[HERE]?.get(this.directory);
    return hub?.protocol === PROTOCOL ? hub : undefined;
  }

  setLocal(hub: LocalHub): () => void {
    const { directory } = this;
    const hubs = (here[HERE] ??= new Map<string, LocalHub>());
    hubs.set(directory, hub);
    return () => {
      if (hubs.get(directory) === hub) hubs.delete(directory);
    };
  }

  address(): Address | undefined {
    return readAddress(this.directory);
  }

  async connect({ socket: path, token }: Address, introduction: Introduction): Promise<Port> {
    const { connect } = process.getBuiltinModule('node:net');
    const socket = connect(path as string);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', () => {
        socket.removeListener('error', reject);
        resolve();
      });
      socket.once('error', reject);
    });
    const port = new SocketPort(socket, undefined);
    port.trust();
    port.send({ ...introduction, token });
    return port;
  }

  async listen(accept: Accept): Promise<() => void> {
    const address = { pid: this.pid, since: this.time(), protocol: PROTOCOL, token: newToken() };
    try {
      const path = socketPath(this.directory);
      removeSocket(path);
      const stop = await this.#listenAt(path, address.token, accept);
      try {
        if (process.platform !== 'win32') fs.chmodSync(path, 0o600);
        const retract = publishAddress(this.directory, { ...address, socket: path });
        return () => {
          retract();
          stop();
        };
      } catch (error) {
        stop();
        throw error;
      }
    } catch (error) {
      // The lock tells others that the database is open; the address tells why it is not shared.
      const reason = error instanceof Error ? error.message : String(error);
      try {
        return publishAddress(this.directory, { ...address, reason });
      } catch {
        return () => {};
      }
    }
  }

  async #listenAt(path: string, token: string, accept: Accept): Promise<() => void> {
    const { createServer } = process.getBuiltinModule('node:net');
    const awake = new Awake();
    const server = createServer((socket) => {
      const port = new SocketPort(socket, awake);
      const cancel = this.after(INTRODUCTION_MS, () => socket.destroy());
      port.onclose = cancel;
      port.onmessage = (first) => {
        cancel();
        port.onmessage = () => {};
        port.onclose = () => {};
        const refusal = !isIntroduction(first)
          ? 'the introduction is malformed'
          : first.token !== token
            ? 'the token is not that of this leader'
            : accept(port, first);
        if (refusal === undefined) return port.trust();
        port.send({ type: 'refused', reason: refusal });
        void port.close();
      };
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      // Without `exclusive` a worker of `node:cluster` lets the primary listen, which would outlive it.
      server.listen({ path, exclusive: true }, () => {
        server.removeListener('error', reject);
        server.on('error', () => {});
        resolve();
      });
    });
    server.unref();
    return () => {
      awake.end();
      server.close();
    };
  }
}
