// One end of a connection between a handle that shares a database and the handle that leads.
import { Buffer } from 'node:buffer';
import type { Socket } from 'node:net';
import { soon } from '../base/platform.ts';
import type { Awake } from '../wire/spin.ts';
import { FrameReader, MAX_FRAME_BYTES, encodeFrame } from './frames.ts';

/** Of a client that does not read, no more is read while so many bytes wait for it. */
const MAX_BACKLOG_BYTES = 1 << 20;
/** How long the process waits for what was sent last, when it closes a connection. */
const LINGER_MS = 1000;
/** How long the connection is there for one that reads later, if the process goes on. */
const KEPT_MS = 60_000;

export interface Port {
  /** Set before the first message arrives. */
  onmessage: (message: unknown) => void;
  /** Called once, unless this end was closed here. */
  onclose: () => void;
  /** Bytes that were sent and not taken yet. */
  readonly backlog: number;
  send(message: object): void;
  /** Closes after what was sent before; resolves when the other end has it, or will not get it. */
  close(): Promise<void>;
}

const ignore = (): void => {};

/** A stream to another thread or process. It keeps no process alive. */
export class SocketPort implements Port {
  onmessage: Port['onmessage'] = ignore;
  onclose: Port['onclose'] = ignore;
  readonly #socket: Socket;
  readonly #reader = new FrameReader();
  readonly #awake: Awake | undefined;
  #isClosed = false;

  /** One that leads stays `awake` for a moment after each message: the next request often follows at once. */
  constructor(socket: Socket, awake: Awake | undefined) {
    this.#socket = socket;
    this.#awake = awake;
    socket.unref();
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('drain', () => {
      if (!socket.isPaused()) return;
      socket.resume();
      this.#read(Buffer.alloc(0));
    });
    socket.on('error', ignore);
    // The other end sends nothing more.
    socket.on('end', () => this.#end());
    socket.on('close', () => this.#end());
  }

  get backlog(): number {
    return this.#socket.writableLength;
  }

  send(message: object): void {
    if (this.#isClosed || this.#socket.destroyed) return;
    this.#socket.cork();
    for (const piece of encodeFrame(message)) this.#socket.write(piece);
    this.#socket.uncork();
    this.#awake?.stay();
  }

  /** The other end has introduced itself. */
  trust(): void {
    this.#reader.maxBytes = MAX_FRAME_BYTES;
  }

  close(): Promise<void> {
    this.#isClosed = true;
    const socket = this.#socket;
    if (socket.destroyed) return Promise.resolve();
    return new Promise((resolve) => {
      const waited = setTimeout(() => {
        // What the system did not take stays in memory no longer.
        if (socket.writableLength > 0) socket.destroy();
        resolve();
      }, LINGER_MS);
      // A process that is stopped reads when it continues.
      const kept = setTimeout(() => socket.destroy(), KEPT_MS);
      kept.unref?.();
      socket.once('close', () => {
        clearTimeout(waited);
        clearTimeout(kept);
        resolve();
      });
      // Incoming data is dropped, but read up to its end: if this end were closed before, the next write
      // of the other process would fail and lose what it has not read yet.
      socket.resume();
      socket.end();
    });
  }

  #read(chunk: Buffer): void {
    if (this.#isClosed) return;
    try {
      for (const message of this.#reader.read(chunk)) {
        if (this.#isClosed) return;
        this.onmessage(message);
        // A client always reads: if both ends waited, none would go on.
        if (this.#awake !== undefined && this.backlog > MAX_BACKLOG_BYTES) {
          this.#socket.pause();
          return;
        }
      }
    } catch {
      // The other end is not a member, or it is broken.
      this.#socket.destroy();
    }
  }

  #end(): void {
    this.#socket.destroy();
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.onclose();
  }
}

/** Copies a message: plain objects and byte arrays. */
function copyOf(value: unknown): unknown {
  if (value instanceof Uint8Array) return value.slice();
  if (Array.isArray(value)) return value.map(copyOf);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, copyOf(of)]));
}

/** Returns the two ends of a connection within a thread. Messages are copied, as between processes. */
export function connectedPorts(): readonly [Port, Port] {
  class MemoryPort implements Port {
    onmessage: Port['onmessage'] = ignore;
    onclose: Port['onclose'] = ignore;
    readonly backlog = 0;
    isClosed = false;
    other: MemoryPort | undefined;

    send(message: object): void {
      const copy = copyOf(message);
      const { other } = this;
      if (!this.isClosed)
        soon(() => {
          if (other?.isClosed === false) other.onmessage(copy);
        });
    }

    close(): Promise<void> {
      if (this.isClosed) return Promise.resolve();
      this.isClosed = true;
      const { other } = this;
      return new Promise((resolve) => {
        // After what was sent before.
        soon(() => {
          resolve();
          if (other === undefined || other.isClosed) return;
          other.isClosed = true;
          other.onclose();
        });
      });
    }
  }
  const [one, other] = [new MemoryPort(), new MemoryPort()];
  one.other = other;
  other.other = one;
  return [one, other];
}
