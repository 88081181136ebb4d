// Reads messages of a database in order, by a consumer that lives as long as it is used.
import { createInbox } from '@nats-io/nats-core';
import type { Msg, Subscription } from '@nats-io/nats-core';
import { performance } from 'mangrove-kv/internal';
import { logUnavailable } from '@mangrove-kv/replication';
import type { Position } from '@mangrove-kv/replication';
import type { Api } from './api.ts';
import { toLogError } from './failures.ts';
import type { Names } from './names.ts';

/** Bytes that one request may bring; a message is at most half of it. */
const MAX_BYTES = 8 * 1024 * 1024;
/** The server forgets a consumer that is not used for this long, in milliseconds. */
const IDLE_TIME = 30_000;

export interface LogMessage {
  readonly position: Position;
  readonly serverTime: number;
  readonly subject: string;
  readonly data: Uint8Array;
  header(name: string): string;
}

/** Consecutive messages; `isEnd` if the stream had no more of them at that time. */
export interface Chunk {
  readonly messages: readonly LogMessage[];
  readonly isEnd: boolean;
}

/** Where a consumer begins: at a position, or with the newest message of each subject. */
export type Start = { readonly at: Position } | 'last per subject';

/** Parses `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<ns>.<pending>`, which may have a domain and an account before the stream. */
function parse(
  message: Msg,
): { readonly sequence: number; readonly position: Position; readonly serverTime: number } | undefined {
  const tokens = message.reply?.split('.') ?? [];
  if (tokens[0] !== '$JS' || tokens[1] !== 'ACK') return undefined;
  const from = tokens.length >= 11 ? 6 : 4;
  const [, position, sequence, time = ''] = tokens.slice(from, from + 4);
  return { position: Number(position), sequence: Number(sequence), serverTime: Number(time.slice(0, -6)) };
}

export class Reader {
  readonly #api: Api;
  readonly #stream: string;
  readonly #name: string;
  readonly #inbox: string;
  #sequence = 0;

  private constructor(api: Api, stream: string, name: string, inbox: string) {
    this.#inbox = inbox;
    this.#api = api;
    this.#stream = stream;
    this.#name = name;
  }

  static async open(api: Api, { stream, inbox }: Names, filter: string, start: Start): Promise<Reader> {
    const name = randomName();
    const policy =
      start === 'last per subject'
        ? { deliver_policy: 'last_per_subject' }
        : { deliver_policy: 'by_start_sequence', opt_start_seq: Math.max(start.at, 1) };
    await api.call(
      `CONSUMER.CREATE.${stream}.${name}.${filter}`,
      {
        stream_name: stream,
        action: 'create',
        config: {
          name,
          filter_subject: filter,
          ...policy,
          ack_policy: 'none',
          replay_policy: 'instant',
          mem_storage: true,
          num_replicas: 1,
          inactive_threshold: IDLE_TIME * 1e6,
          max_waiting: 2,
        },
      },
      'opening a consumer of the log',
    );
    return new Reader(api, stream, name, inbox);
  }

  /**
   * The next messages, at most `limit`. Rejects if the server has lost the consumer or one of its
   * messages on the way here: then another reader has to be opened.
   */
  async next(limit: number): Promise<Chunk> {
    for (const end = performance.now() + this.#api.connection.timeout; ; ) {
      const chunk = await this.#request(limit);
      if (chunk !== undefined) return chunk;
      // Other servers learn of a new consumer a moment later.
      if (this.#sequence > 0 || performance.now() > end)
        throw logUnavailable('reading the log: the server has lost the consumer');
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  /** Undefined if no server knows the consumer. */
  async #request(limit: number): Promise<Chunk | undefined> {
    let subscription: Subscription | undefined;
    try {
      const connection = await this.#api.connection.get();
      const inbox = createInbox(this.#inbox);
      const chunk = await new Promise<Chunk | undefined>((resolve, reject) => {
        const messages: LogMessage[] = [];
        const lost = (why: string): void => {
          clearTimeout(timer);
          reject(logUnavailable(`reading the log: ${why}`));
        };
        const wait = (): ReturnType<typeof setTimeout> =>
          setTimeout(lost, this.#api.connection.timeout, 'the server does not answer');
        let timer = wait();
        const end = (isEnd: boolean): void => {
          clearTimeout(timer);
          resolve({ messages, isEnd });
        };
        subscription = connection.subscribe(inbox, {
          callback: (error, message) => {
            if (error) {
              clearTimeout(timer);
              reject(error);
              return;
            }
            const code = message.headers?.code ?? 0;
            if (message.data.length === 0 && code >= 100) {
              // 404: no more. 408: the request is over. 409: the bytes are used up, or the consumer is gone.
              const isFull = code === 409 && /maxbytes/i.test(message.headers?.description ?? '');
              if (code === 404 || code === 408) end(true);
              else if (isFull && messages.length > 0) end(false);
              else if (code === 503 && messages.length === 0) {
                clearTimeout(timer);
                resolve(undefined);
              } else if (code !== 100) lost(`the server ended it with ${code} ${message.headers?.description}`);
              return;
            }
            const place = parse(message);
            if (place === undefined || place.sequence !== this.#sequence + 1) {
              lost(
                place === undefined
                  ? `a message has the reply ${message.reply}`
                  : `message ${place.sequence} came after ${this.#sequence}`,
              );
              return;
            }
            this.#sequence = place.sequence;
            messages.push({
              position: place.position,
              serverTime: place.serverTime,
              subject: message.subject,
              data: message.data,
              header: (name) => message.headers?.get(name) ?? '',
            });
            clearTimeout(timer);
            if (messages.length === limit) end(false);
            else timer = wait();
          },
        });
        connection.publish(
          this.#api.subject(`CONSUMER.MSG.NEXT.${this.#stream}.${this.#name}`),
          JSON.stringify({ batch: limit, no_wait: true, max_bytes: MAX_BYTES }),
          { reply: inbox },
        );
      });
      return chunk;
    } catch (error) {
      throw toLogError(error, 'reading the log');
    } finally {
      subscription?.unsubscribe();
    }
  }

  /** Tells the server that nobody will use it any more, which it would find out by itself. */
  close(): void {
    this.#api
      .call(`CONSUMER.DELETE.${this.#stream}.${this.#name}`, undefined, 'closing a consumer')
      .catch(() => undefined);
  }
}

/** Nobody else can guess it, so nobody else can take messages away. */
function randomName(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
