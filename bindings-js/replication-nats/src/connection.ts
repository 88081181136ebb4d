// Connects on first use and replaces a connection that closed for good.
import { jwtAuthenticator, tokenAuthenticator, usernamePasswordAuthenticator, wsconnect } from '@nats-io/nats-core';
import type { Authenticator, ConnectionOptions, NatsConnection, WsConnectionOptions } from '@nats-io/nats-core';
import { KvError } from 'mangrove-kv';
import { performance } from 'mangrove-kv/internal';
import { logRefused, logUnavailable } from '@mangrove-kv/replication';
import { toLogError } from './failures.ts';
import { openSocket } from './socket.ts';

/** Older servers have lost acknowledged records in tests with faults. */
export const MIN_SERVER = '2.15.2';

/** Milliseconds that a device stays with a server at least: without a quorum, none is better. */
const STAY_TIME = 5000;

/** A clock that is set back by more than this is not being adjusted, in milliseconds. */
const CLOCK_STEP = 1000;

/** What the client tells before it connects again. */
const LEAVING: ReadonlySet<string> = new Set(['disconnect', 'staleConnection', 'forceReconnect']);

/** Grows when the device's clock is set forward, or runs on while the device sleeps; falls when it is set back. */
const clockAhead = (): number => Date.now() - performance.now();

/** What a device shows the servers: a JWT with the seed of its key, or a user with a password, or a token. */
export type NatsCredentials =
  | { readonly jwt: string; readonly seed: string }
  | { readonly user: string; readonly password: string }
  | { readonly token: string };

export interface ConnectionSettings {
  readonly servers: string | readonly string[];
  readonly credentials?: NatsCredentials | (() => NatsCredentials | Promise<NatsCredentials>) | undefined;
  readonly connect?: ((options: ConnectionOptions) => Promise<NatsConnection>) | undefined;
  /** Milliseconds. */
  readonly timeout: number;
  readonly name: string;
  readonly inbox?: string | undefined;
}

/** Whether a version is at least another one; a prerelease comes before its version. */
export function isAtLeast(version: string, wanted: string): boolean {
  const [core = '', prerelease] = version.split(/-(.*)/s);
  const parts = (text: string): number[] => text.split('.').map(Number);
  const [own, least] = [parts(core), parts(wanted)];
  for (let at = 0; at < 3; at++) {
    const difference = (own[at] ?? Number.NaN) - (least[at] as number);
    if (difference !== 0) return difference > 0;
  }
  return prerelease === undefined;
}

function authenticatorOf(credentials: NatsCredentials): Authenticator {
  if ('jwt' in credentials) return jwtAuthenticator(credentials.jwt, new TextEncoder().encode(credentials.seed));
  return 'token' in credentials
    ? tokenAuthenticator(credentials.token)
    : usernamePasswordAuthenticator(credentials.user, credentials.password);
}

/** Settles with a promise, but rejects after a time; what was started then goes on. */
function inTime<T>(promise: Promise<T>, milliseconds: number, what: string): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(logUnavailable(`${what} takes more than ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export class Connection {
  readonly #settings: ConnectionSettings;
  readonly #watchers = new Set<() => void>();
  #current: Promise<NatsConnection> | undefined;
  /** What `#current` has resolved to. */
  #opened: NatsConnection | undefined;
  /** Since when the client has been connecting again. */
  #lostAt: number | undefined;
  /** At the newest connection, or later. */
  #ahead = 0;
  #isClosed = false;
  #isFollowing = false;
  #leftAt = -STAY_TIME;

  constructor(settings: ConnectionSettings) {
    this.#settings = settings;
  }

  get timeout(): number {
    return this.#settings.timeout;
  }

  /** The connection. Rejects with KV_LOG_UNAVAILABLE or KV_LOG_REFUSED; the next call tries again. */
  get(): Promise<NatsConnection> {
    if (this.#isClosed) return Promise.reject(new KvError('KV_CLOSED', 'the log is closed'));
    if (this.#isClockSetBack() || this.#isStuck()) this.#replace();
    if (this.#current === undefined) {
      const opening = this.#open();
      this.#current = opening;
      opening.then(
        (connection) => {
          if (this.#current === opening) this.#opened = connection;
        },
        () => {
          if (this.#current === opening) this.#current = undefined;
        },
      );
    }
    // What gets the credentials is the application's, and may take any time.
    return this.#opened === undefined ? inTime(this.#current, this.timeout, 'connecting to the log') : this.#current;
  }

  /** Goes to another server, if there is one, as this one does not answer or is cut off from the others. */
  leaveServer(connection: NatsConnection): void {
    if (connection.isClosed() || performance.now() - this.#leftAt < STAY_TIME) return;
    this.#leftAt = performance.now();
    void connection.reconnect().catch(() => undefined);
  }

  /** Calls a listener after each connection and reconnection. Returns what ends it. */
  watch(listener: () => void): () => void {
    this.#watchers.add(listener);
    return () => this.#watchers.delete(listener);
  }

  /** While there are watchers, replaces each connection that closes for good. */
  follow(): void {
    if (this.#isFollowing || !this.#isWanted) return;
    this.#isFollowing = true;
    void this.#keepUp().finally(() => {
      this.#isFollowing = false;
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#watchers.clear();
    const current = this.#current;
    this.#current = undefined;
    if (current === undefined) return;
    // A connection may never open, and the client's `close` waits for an event that Node does not
    // always send if the connection was being replaced.
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, this.timeout);
    });
    await Promise.race([current.then((connection) => connection.close()).catch(() => undefined), late]);
    clearTimeout(timer);
  }

  /**
   * The client times its attempts to connect by the clock: when that is set back by a day while a
   * connection is lost, it does not connect for a day.
   */
  #isClockSetBack(): boolean {
    const ahead = clockAhead();
    const isSetBack = this.#current !== undefined && ahead < this.#ahead - CLOCK_STEP;
    this.#ahead = this.#current === undefined || isSetBack ? ahead : Math.max(this.#ahead, ahead);
    return isSetBack;
  }

  /** Milliseconds in which a client tries all servers. */
  get #roundTime(): number {
    const { servers, timeout } = this.#settings;
    return timeout * (typeof servers === 'string' ? 2 : servers.length + 1);
  }

  /** A client that has tried all servers in vain may also wait for an event that never comes. */
  #isStuck(): boolean {
    return this.#lostAt !== undefined && performance.now() - this.#lostAt > this.#roundTime;
  }

  #replace(): void {
    const replaced = this.#current;
    this.#current = undefined;
    this.#opened = undefined;
    this.#lostAt = undefined;
    void replaced?.then((connection) => connection.close()).catch(() => undefined);
  }

  async #open(): Promise<NatsConnection> {
    const { servers, credentials, connect = wsconnect, timeout, name, inbox } = this.#settings;
    if (connect === wsconnect && typeof WebSocket === 'undefined') {
      throw new KvError(
        'KV_UNSUPPORTED',
        'this runtime has no WebSocket, as Node before 22: pass `connect` of @nats-io/transport-node to natsLog',
      );
    }
    let connection: NatsConnection;
    try {
      const known = typeof credentials === 'function' ? await credentials() : credentials;
      const options: WsConnectionOptions = {
        servers: typeof servers === 'string' ? [servers] : [...servers],
        name,
        timeout,
        maxReconnectAttempts: -1,
        reconnectTimeWait: 250,
        reconnectJitter: 250,
        noAsyncTraces: true,
        // They name each other by addresses that a device may not reach.
        ignoreClusterUpdates: true,
        pingInterval: 15_000,
        wsFactory: openSocket,
        ...(inbox === undefined ? {} : { inboxPrefix: inbox }),
        ...(known === undefined ? {} : { authenticator: authenticatorOf(known) }),
      };
      const connecting = connect(options);
      connection = await inTime(connecting, this.#roundTime, 'connecting to the log').catch((error: unknown) => {
        void connecting.then((late) => late.close()).catch(() => undefined);
        throw error;
      });
    } catch (error) {
      throw toLogError(error, 'connecting to the log');
    }
    if (this.#isClosed) {
      void connection.close().catch(() => undefined);
      throw new KvError('KV_CLOSED', 'the log is closed');
    }
    this.#checkVersion(connection);
    void this.#follow(connection);
    this.#notify();
    return connection;
  }

  #checkVersion(connection: NatsConnection): void {
    const version = connection.info?.version ?? 'of unknown version';
    if (isAtLeast(version, MIN_SERVER)) return;
    void connection.close().catch(() => undefined);
    throw logRefused(
      `nats-server ${version} at ${connection.getServer()} is refused, because older versions can lose acknowledged records: run ${MIN_SERVER} or later`,
    );
  }

  async #follow(connection: NatsConnection): Promise<void> {
    void connection.closed().then(() => this.#forget(connection));
    for await (const { type } of connection.status()) {
      const isCurrent = connection === this.#opened;
      if (isCurrent && LEAVING.has(type)) this.#lostAt ??= performance.now();
      if (type !== 'reconnect') continue;
      if (isCurrent) this.#lostAt = undefined;
      try {
        // Another server of the cluster may be older.
        this.#checkVersion(connection);
        this.#notify();
      } catch {
        // It is closed; the next one that is opened says why.
      }
    }
  }

  async #forget(connection: NatsConnection): Promise<void> {
    if ((await this.#current?.catch(() => undefined)) !== connection) return;
    this.#replace();
    this.follow();
  }

  async #keepUp(): Promise<void> {
    for (let wait = 500; this.#isWanted; wait = Math.min(wait * 2, 30_000)) {
      if (
        await this.get().then(
          () => true,
          () => false,
        )
      )
        return;
      await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
    }
  }

  get #isWanted(): boolean {
    return !this.#isClosed && this.#watchers.size > 0;
  }

  #notify(): void {
    for (const watcher of [...this.#watchers]) watcher();
  }
}
