// RemoteLog on JetStream.
import { KvError } from 'mangrove-kv';
import { performance } from 'mangrove-kv/internal';
import { logConflict, logRefused, logTruncated, logUnavailable } from '@mangrove-kv/replication';
import type { AppendOptions, LoggedRecord, Position, RemoteLog } from '@mangrove-kv/replication';
import { Api } from './api.ts';
import { Connection } from './connection.ts';
import { WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_UNKNOWN, apiError, toLogError } from './failures.ts';
import type { ApiFailure } from './failures.ts';
import type { NatsLogOptions } from './index.ts';
import { LAG, floorIn, floorOf, pause, recordAt, scan } from './messages.ts';
import { LIVE, kindOf, namesOf, senderOf } from './names.ts';
import type { Names } from './names.ts';
import { Reader } from './reader.ts';
import type { Chunk, LogMessage } from './reader.ts';

/** Bytes of a record: the default limit of a message, less what its headers take. */
const MAX_RECORD = 1024 * 1024 - 4096;
/**
 * The idempotency key. Not `Nats-Msg-Id`, which is compared with those of all databases of a stream
 * for some minutes: a device could use up the ids of another one's next records.
 */
const KEY_HEADER = 'Mangrove-Key';
const EXPECTED = 'Nats-Expected-Last-Subject-Sequence';
const EXPECTED_OF = 'Nats-Expected-Last-Subject-Sequence-Subject';
/** On a record that was appended with `expect`: the position of the record before it. */
const AFTER = 'Mangrove-After';
const KEY = /^[!-~]{1,200}$/;

/** Records that were read, and how far the consumer that read them is. */
interface Cursor {
  readonly reader: Reader;
  /** The last record that `read` has returned. */
  returned: Position;
  /** The last message that was seen; there is no valid record between the two. */
  seen: Position;
  /** The last record that was seen, valid or not. */
  before: Position;
}

interface Manifest {
  readonly revision: Position;
  readonly manifest: Uint8Array;
}

interface Own {
  readonly position: Position;
  readonly key: string;
}

/** The server has checked that the device may write to the subject. */
const toRecord = ({ position, serverTime, subject, data }: LogMessage): LoggedRecord => ({
  position,
  serverTime,
  sender: senderOf(subject),
  record: data,
});

export class NatsLog implements RemoteLog {
  readonly #names: Names;
  readonly #connection: Connection;
  readonly #api: Api;
  #cursor: Cursor | undefined;
  /** The last record that this device has in the log, as far as is known. */
  #own: Own = { position: 0, key: '' };
  /** The newest revision of the manifest that is known to be there. */
  #revision: Position = 0;
  #tail: Promise<unknown> = Promise.resolve();
  #reading: Promise<unknown> = Promise.resolve();

  constructor(options: NatsLogOptions) {
    this.#names = namesOf(options);
    this.#connection = new Connection({
      servers: options.servers,
      credentials: options.credentials,
      connect: options.connect,
      timeout: options.timeout ?? 10_000,
      name: `mangrove ${this.#names.database} ${this.#names.device}`,
      inbox: this.#names.inbox,
    });
    this.#api = new Api(this.#connection, options.apiPrefix ?? '$JS.API');
  }

  append(record: Uint8Array, { idempotencyKey, expect, signal }: AppendOptions): Promise<Position> {
    if (!KEY.test(idempotencyKey))
      return Promise.reject(
        new KvError(
          'KV_INVALID_ARGUMENT',
          `idempotencyKey has to be 1 to 200 printable characters of ASCII without spaces, not ${JSON.stringify(idempotencyKey)}`,
        ),
      );
    if (record.length > MAX_RECORD)
      return Promise.reject(
        logRefused(`a record of ${record.length} bytes is refused: at most ${MAX_RECORD} fit into a message`),
      );
    return abortable(() => {
      // One at a time: each one names the one before it.
      const appended = this.#tail
        .then(() => {
          signal?.throwIfAborted();
          return expect === undefined
            ? this.#appendAnywhere(record, idempotencyKey)
            : this.#appendAfter(record, idempotencyKey, expect);
        })
        .catch((error: unknown) => {
          throw signal?.aborted === true ? signal.reason : toLogError(error, 'appending to the log');
        });
      this.#tail = appended.catch(() => undefined);
      return appended;
    }, signal);
  }

  /**
   * Appends after this device's last record, whatever others do. As nobody else writes to its
   * subject, a failed condition on that subject shows what became of a repeated append.
   */
  async #appendAnywhere(record: Uint8Array, key: string): Promise<Position> {
    for (const end = this.#deadline(); ; ) {
      if (isRepeated(key, this.#own.key)) {
        const found = await this.#find(key);
        if (found !== undefined) {
          this.#checkBytes(found, record, key);
          return found.position;
        }
      }
      const reply = await this.#api.publish(this.#names.own, record, {
        [KEY_HEADER]: key,
        [EXPECTED]: String(this.#own.position),
      });
      if (!('error' in reply)) {
        this.#own = { position: reply.seq, key };
        return reply.seq;
      }
      const last = await this.#lastOrWait(reply.error, end);
      if (last === undefined) continue;
      const [found] = last === 0 ? [] : await scan(this.#api, this.#names, last, last);
      this.#own = { position: last, key: found === undefined ? '' : keyOf(found) };
    }
  }

  /** Appends if the newest record is at a position. */
  async #appendAfter(record: Uint8Array, key: string, expect: Position): Promise<Position> {
    let after = expect;
    let expected = expect;
    for (const end = this.#deadline(); ; ) {
      const reply = await this.#api.publish(this.#names.own, record, {
        [KEY_HEADER]: key,
        [EXPECTED]: String(expected),
        [EXPECTED_OF]: this.#names.records,
        [AFTER]: String(after),
      });
      if (!('error' in reply)) {
        this.#own = { position: reply.seq, key };
        // The server does not compare with records of other devices that are on their way into the
        // stream. If one of them came first, then all readers ignore this one.
        if (reply.seq > after + 1 && (await this.#recordsBetween(after, reply.seq)).length > 1)
          throw this.#conflict(expect);
        return reply.seq;
      }
      const last = await this.#lastOrWait(reply.error, end);
      if (last === undefined) continue;
      if (last > after) {
        const found = await this.#recordsBetween(after, last);
        const mine = found.find(
          (message) => keyOf(message) === key && isValid(message, found[found.indexOf(message) - 1]?.position ?? after),
        );
        if (mine !== undefined) {
          this.#checkBytes(mine, record, key);
          return mine.position;
        }
        if (hasValid(found, after)) throw this.#conflict(expect);
        // Records that all readers ignore are in between.
        after = last;
        expected = last;
      } else if (last < expected && (await floorOf(this.#api, this.#names)) >= expect) {
        // The record that it comes after is purged.
        expected = last;
      } else {
        throw this.#conflict(expect);
      }
    }
  }

  async read(after: Position, limit: number, signal?: AbortSignal): Promise<readonly LoggedRecord[]> {
    return abortable(() => {
      const read = this.#reading
        .then(() => {
          signal?.throwIfAborted();
          return this.#read(after, limit);
        })
        .catch((error: unknown) => {
          this.#cursor?.reader.close();
          this.#cursor = undefined;
          throw signal?.aborted === true ? signal.reason : toLogError(error, 'reading the log');
        });
      this.#reading = read.catch(() => undefined);
      return read;
    }, signal);
  }

  async #read(after: Position, limit: number): Promise<readonly LoggedRecord[]> {
    const { cursor, chunk: first } = await this.#chunkAfter(after, limit);
    const records: LoggedRecord[] = [];
    for (let chunk = first; ; chunk = await cursor.reader.next(limit)) {
      for (const message of chunk.messages) this.#take(message, after, cursor, records);
      if (chunk.isEnd) return records;
      if (records.length === 0) continue;
      // What marks a purge comes at the end of the log, which this has not reached.
      const floor = await floorOf(this.#api, this.#names);
      if (floor > after) throw this.#truncated(after, floor);
      return records;
    }
  }

  #take(message: LogMessage, after: Position, cursor: Cursor, records: LoggedRecord[]): void {
    cursor.seen = message.position;
    if (message.subject === this.#names.own && message.position > this.#own.position)
      this.#own = { position: message.position, key: keyOf(message) };
    const kind = kindOf(message.subject);
    if (kind === 'floor') {
      const floor = floorIn(message);
      if (floor > after) throw this.#truncated(after, floor);
    }
    if (kind !== 'record') return;
    const isTaken = isValid(message, cursor.before);
    cursor.before = message.position;
    if (!isTaken) return;
    cursor.returned = message.position;
    records.push(toRecord(message));
  }

  /** Continues with the consumer that has read up to `after`, or with a new one. */
  async #chunkAfter(after: Position, limit: number): Promise<{ readonly cursor: Cursor; readonly chunk: Chunk }> {
    const kept = this.#cursor;
    if (kept !== undefined && after >= kept.returned && after <= kept.seen) {
      try {
        return { cursor: kept, chunk: await kept.reader.next(limit) };
      } catch {
        // The server forgets consumers; a new one shows whether it is more than that.
      }
    }
    kept?.reader.close();
    this.#cursor = undefined;
    const reader = await Reader.open(this.#api, this.#names, this.#names.all, { at: after + 1 });
    const cursor = { reader, returned: after, seen: after, before: after };
    this.#cursor = cursor;
    return { cursor, chunk: await reader.next(limit) };
  }

  async at(position: Position): Promise<LoggedRecord | undefined> {
    if (position < 1) return undefined;
    try {
      const message = await recordAt(this.#api, this.#names, position);
      const floor = message === undefined ? await floorOf(this.#api, this.#names) : 0;
      if (floor >= position) throw this.#truncated(position - 1, floor);
      return message && toRecord(message);
    } catch (error) {
      throw toLogError(error, `reading position ${position} of the log`);
    }
  }

  wake(listener: (isReconnected?: boolean) => void): () => void {
    let isEnded = false;
    const subscribe = async (): Promise<() => void> => {
      const connection = await this.#connection.get();
      const subscription = connection.subscribe(`${LIVE}${this.#names.records}`, {
        callback: (error, message) => {
          if (error === null && !isEnded && message.subject !== `${LIVE}${this.#names.own}`) listener();
        },
      });
      return () => subscription.unsubscribe();
    };
    let subscribedTo: unknown;
    let unsubscribe: () => void = () => undefined;
    const unwatch = this.#connection.watch(() => {
      void this.#connection
        .get()
        .then(async (connection) => {
          if (isEnded) return;
          // It keeps its subscriptions when it reconnects; another connection has none.
          if (connection !== subscribedTo) {
            subscribedTo = connection;
            unsubscribe = await subscribe();
            if (isEnded) unsubscribe();
          }
          if (!isEnded) listener(true);
        })
        .catch(() => undefined);
    });
    this.#connection.follow();
    return () => {
      isEnded = true;
      unwatch();
      unsubscribe();
    };
  }

  async manifest(): Promise<Manifest | undefined> {
    try {
      for (const end = this.#deadline(); ; ) {
        const found = await this.#manifestOfServer();
        if ((found?.revision ?? 0) >= this.#revision) {
          this.#revision = found?.revision ?? 0;
          return found;
        }
        if (performance.now() > end) {
          // Servers that lost the newest one must not keep it from being replaced.
          this.#revision = 0;
          throw logUnavailable('reading the manifest: the server that was asked lags behind');
        }
        await pause(LAG);
      }
    } catch (error) {
      throw toLogError(error, 'reading the manifest');
    }
  }

  /** What the server of this connection has, which may lag behind the others. */
  async #manifestOfServer(): Promise<Manifest | undefined> {
    const message = await this.#api.raw(`DIRECT.GET.${this.#names.manifests}.${this.#names.manifest}`);
    const code = message.headers?.code ?? 0;
    if (code === 404) return undefined;
    if (code !== 0) throw logUnavailable(`reading the manifest: ${code} ${message.headers?.description}`);
    return { revision: Number(message.headers?.get('Nats-Sequence')), manifest: message.data };
  }

  async replaceManifest(previous: Position, next: Uint8Array): Promise<Position> {
    try {
      for (const end = this.#deadline(); ; ) {
        const reply = await this.#api.publish(this.#names.manifest, next, { [EXPECTED]: String(previous) });
        if (!('error' in reply)) {
          this.#revision = reply.seq;
          return reply.seq;
        }
        const last = await this.#lastOrWait(reply.error, end);
        if (last === undefined) continue;
        this.#revision = last;
        // A reply may have been lost.
        if (last > previous) {
          const current = await this.manifest();
          if (current?.revision === last && isSame(current.manifest, next)) return last;
        }
        throw logConflict(`the manifest's revision is ${last}, not ${previous}: read it again`);
      }
    } catch (error) {
      throw toLogError(error, 'replacing the manifest');
    }
  }

  async purge(upTo: Position): Promise<void> {
    try {
      // The floor marker goes first: every reader meets it before or after the gap that the purge leaves.
      const reply = await this.#api.publish(this.#names.floor, new TextEncoder().encode(String(upTo)), {});
      if ('error' in reply) throw apiError(reply.error, 'marking a purge');
      await this.#api.call(
        `STREAM.PURGE.${this.#names.stream}`,
        { filter: this.#names.all, seq: upTo + 1 },
        'purging the log',
      );
    } catch (error) {
      throw toLogError(error, 'purging the log');
    }
  }

  async close(): Promise<void> {
    this.#cursor?.reader.close();
    await this.#connection.close();
  }

  #deadline(): number {
    return performance.now() + this.#connection.timeout;
  }

  /** The position that a failed condition names. Waits and returns undefined if it names none because another append is under way. */
  async #lastOrWait(error: ApiFailure, end: number): Promise<Position | undefined> {
    if (performance.now() > end) throw logUnavailable('appending to the log: other devices were faster each time');
    if (error.err_code === WRONG_LAST_SEQUENCE_UNKNOWN) {
      await pause(2 + Math.random() * 20);
      return undefined;
    }
    const last = error.err_code === WRONG_LAST_SEQUENCE ? /(\d+)$/.exec(error.description)?.[1] : undefined;
    if (last === undefined) throw apiError(error, 'appending to the log');
    return Number(last);
  }

  async #recordsBetween(after: Position, last: Position): Promise<LogMessage[]> {
    return (await scan(this.#api, this.#names, after + 1, last)).filter(
      (message) => kindOf(message.subject) === 'record',
    );
  }

  /** Looks for a record of this device that readers do not ignore. */
  async #find(key: string): Promise<LogMessage | undefined> {
    const { position, key: newest } = this.#own;
    const found =
      newest === key
        ? await scan(this.#api, this.#names, position, position)
        : await scan(this.#api, this.#names, 1, position, this.#names.own);
    for (const message of found.filter((one) => keyOf(one) === key)) {
      const after = message.header(AFTER);
      if (after === '' || (await this.#recordsBetween(Number(after), message.position)).length === 1) return message;
    }
    return undefined;
  }

  #checkBytes(found: LogMessage, record: Uint8Array, key: string): void {
    if (!isSame(found.data, record))
      throw logConflict(`position ${found.position} of the log has another record with the idempotency key ${key}`);
  }

  #conflict(expect: Position): KvError {
    return logConflict(
      `position ${expect} is not that of the newest record of the log any more: read on and try again`,
    );
  }

  #truncated(after: Position, floor: Position): KvError {
    return logTruncated(
      `the log is purged up to position ${floor}, so it cannot be read after ${after}: continue from a snapshot`,
    );
  }
}

/** The idempotency key of a record. */
function keyOf(message: LogMessage): string {
  return message.header(KEY_HEADER);
}

/** Whether a key `<device>:<sequence>` is the last one, or one before it. */
function isRepeated(key: string, last: string): boolean {
  const [own, newest] = [key, last].map((text) => /^(.*):(\d+)$/.exec(text));
  if (own == null || newest == null || own[1] !== newest[1]) return key === last;
  return Number(own[2]) <= Number(newest[2]);
}

/** Whether a record that was appended with `expect` comes after what it expected; `before` is the record before it. */
function isValid(message: LogMessage, before: Position): boolean {
  const after = message.header(AFTER);
  return after === '' || Number(after) >= before;
}

function hasValid(records: readonly LogMessage[], after: Position): boolean {
  return records.some((message, at) => isValid(message, records[at - 1]?.position ?? after));
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, at) => byte === b[at]);
}

/** Rejects with the signal's reason when it is aborted; what was started then goes on. */
function abortable<T>(start: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return start();
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    start()
      .then(resolve, reject)
      .finally(() => signal.removeEventListener('abort', abort));
  });
}
