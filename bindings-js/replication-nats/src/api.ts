// The requests of JetStream that a log needs.
import { errors, headers as newHeaders } from '@nats-io/nats-core';
import type { Msg, NatsConnection } from '@nats-io/nats-core';
import type { Position } from '@mangrove-kv/replication';
import type { Connection } from './connection.ts';
import { apiError, hasCause, toLogError } from './failures.ts';
import type { ApiFailure } from './failures.ts';

export interface PublishReply {
  readonly seq: Position;
}

export class Api {
  readonly connection: Connection;
  readonly #prefix: string;

  constructor(connection: Connection, prefix: string) {
    this.connection = connection;
    this.#prefix = prefix;
  }

  subject(request: string): string {
    return `${this.#prefix}.${request}`;
  }

  /** Sends a request of the API and returns the reply, or the failure that the server reports. */
  async tryCall<T>(request: string, body: unknown): Promise<T | { readonly error: ApiFailure }> {
    const reply = await this.#request(
      this.subject(request),
      body === undefined ? undefined : new TextEncoder().encode(JSON.stringify(body)),
    );
    return reply.json<T | { readonly error: ApiFailure }>();
  }

  async call<T>(request: string, body: unknown, what: string): Promise<T> {
    try {
      const reply = await this.tryCall<T>(request, body);
      if (typeof reply === 'object' && reply !== null && 'error' in reply) throw apiError(reply.error, what);
      return reply as T;
    } catch (error) {
      throw toLogError(error, what);
    }
  }

  /** Publishes to a stream, and returns what the server says once the message is in it, or why it is not. */
  async publish(
    subject: string,
    data: Uint8Array,
    headers: Readonly<Record<string, string>>,
  ): Promise<PublishReply | { readonly error: ApiFailure }> {
    const reply = (await this.#request(subject, data, headers)).json<PublishReply & { readonly error?: ApiFailure }>();
    return reply.error === undefined ? { seq: reply.seq } : { error: reply.error };
  }

  /** The reply to a request without a body that is not JSON. */
  raw(request: string): Promise<Msg> {
    return this.#request(this.subject(request));
  }

  async #request(subject: string, data?: Uint8Array, fields: Readonly<Record<string, string>> = {}): Promise<Msg> {
    const connection: NatsConnection = await this.connection.get();
    const headers = newHeaders();
    for (const [name, value] of Object.entries(fields)) headers.set(name, value);
    try {
      return await connection.request(subject, data, {
        timeout: this.connection.timeout,
        ...(Object.keys(fields).length === 0 ? {} : { headers }),
      });
    } catch (error) {
      if (hasCause(error, errors.TimeoutError) || hasCause(error, errors.NoRespondersError))
        this.connection.leaveServer(connection);
      throw error;
    }
  }
}
