// A connection to the leader without the package: what a broken or hostile program may send.
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import process from 'node:process';
import type { Key } from 'mangrove-kv';
import { KvDatabase } from '../../src/api/database.ts';
import { FrameReader, MAX_FRAME_BYTES, encodeFrame } from '../../src/processes/frames.ts';
import { PROTOCOL } from '../../src/tabs/messages.ts';
import { Connection } from '../../src/wire/connection.ts';
import type { Transport } from '../../src/wire/transport.ts';
import { until, within } from './member.ts';
import type { Leader } from './member.ts';

interface Received {
  readonly type: string;
  readonly term?: number;
  readonly seq?: number;
  readonly reason?: string;
  readonly bytes?: Uint8Array;
}

let clients = 0;

export class RawClient {
  readonly socket: Socket;
  readonly client = `raw.${process.pid}.${++clients}`;
  readonly received: Received[] = [];
  isClosed = false;
  #term = 0;
  readonly #leader: Leader;

  private constructor(socket: Socket, leader: Leader) {
    this.socket = socket;
    this.#leader = leader;
    const reader = new FrameReader();
    reader.maxBytes = MAX_FRAME_BYTES;
    socket.on('data', (chunk: Buffer) => {
      for (const message of reader.read(chunk) as Iterable<Received>) {
        this.received.push(message);
        if (message.type === 'lead') this.#term = message.term ?? 0;
      }
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      this.isClosed = true;
    });
  }

  static async connect(leader: Leader): Promise<RawClient> {
    const socket = connect(leader.socket);
    await within('a connection', once(socket, 'connect'));
    return new RawClient(socket, leader);
  }

  /** Connects, and becomes a member that the leader serves. */
  static async join(leader: Leader): Promise<RawClient> {
    const raw = await RawClient.connect(leader);
    raw.introduce();
    await raw.hears('lead');
    raw.send({ type: 'hello', protocol: PROTOCOL, term: raw.term, client: raw.client, visible: true });
    await raw.hears('ready');
    return raw;
  }

  introduce(changed: object = {}): void {
    const { client } = this;
    const { token } = this.#leader;
    this.send({ protocol: PROTOCOL, client, pid: process.pid, title: 'raw', token, ...changed });
  }

  send(message: object): void {
    this.write(Buffer.concat(encodeFrame(message)));
  }

  write(bytes: Uint8Array): void {
    this.socket.write(bytes);
  }

  request(seq: number, message: Uint8Array): void {
    const hello = seq === 1 ? { state: null, readOnly: false } : undefined;
    this.send({ type: 'request', term: this.term, seq, message, hello });
  }

  get term(): number {
    return this.#term;
  }

  hears(type: string, count = 1): Promise<void> {
    return until(
      `${count} times ${type}`,
      () => this.received.filter((message) => message.type === type).length >= count,
    );
  }

  closes(): Promise<void> {
    return until('the leader ends the connection', () => this.isClosed);
  }
}

/** The bytes that a handle would send for these calls. */
export async function messageOf(calls: (db: KvDatabase<Key, unknown>) => unknown): Promise<Uint8Array> {
  const sent: Uint8Array[] = [];
  const transport: Transport = {
    takesBuffers: false,
    events: undefined,
    send: (message) => void sent.push(message.slice()),
    dispose: () => {},
  };
  const info = { path: '', persistence: 'fs', isLocked: false, durability: 'strict' } as const;
  calls(new KvDatabase<Key, unknown>(new Connection(transport), info, {}));
  await until('a message', () => sent.length > 0);
  return sent[0] as Uint8Array;
}
