// A bucket of an S3-compatible server, of which only creating with `If-None-Match: *`, reading,
// listing and deleting are used.
import { AwsClient } from 'aws4fetch';
import { KvError } from '../../base/errors.ts';
import { logRefused, logUnavailable } from '../remote-log.ts';

/** Keys of an S3-compatible service. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** Where a bucket is. */
export interface S3Options {
  /** The address of the service, such as `https://s3.eu-central-1.amazonaws.com`. */
  readonly endpoint: string;
  readonly bucket: string;
  /** Default: `us-east-1`. */
  readonly region?: string | undefined;
  /** Called before each request. */
  readonly credentials: S3Credentials | (() => S3Credentials | Promise<S3Credentials>);
  /** What all keys start with; empty, or with a `/` at its end. Default: empty. */
  readonly prefix?: string | undefined;
  /** How long to wait for an answer, in milliseconds. Default: 30,000. */
  readonly timeout?: number | undefined;
  /** Default: that of the runtime. */
  readonly fetch?: ((request: Request) => Promise<Response>) | undefined;
}

export interface S3Object {
  readonly bytes: Uint8Array;
  /** Milliseconds since 1970, by the server's clock. */
  readonly modified: number;
}

/** How many requests are under way at the same time, where there are many. */
const PARALLEL = 16;
const NOT_CREATED = new Set([409, 412]);
const RETRYABLE = new Set([408, 425, 429]);

export class Bucket {
  readonly #options: S3Options;
  readonly #prefix: string;
  readonly #root: string;

  constructor(options: S3Options, folder = '') {
    const { endpoint, bucket, prefix = '' } = options;
    if (typeof endpoint !== 'string' || !/^https?:\/\//.test(endpoint)) throw new KvError('KV_INVALID_ARGUMENT', `endpoint has to be the address of an S3-compatible service, not ${String(endpoint)}`);
    if (typeof bucket !== 'string' || bucket === '') throw new KvError('KV_INVALID_ARGUMENT', 'bucket has to be the name of a bucket');
    if (prefix !== '' && !prefix.endsWith('/')) throw new KvError('KV_INVALID_ARGUMENT', `prefix has to end with "/": ${prefix}`);
    this.#options = options;
    this.#root = `${endpoint.replace(/\/+$/, '')}/${bucket}`;
    this.#prefix = prefix + folder;
  }

  /**
   * Creates an object. Returns false if there is one, or if several creators raced and this one
   * did not win; an object that was not created may have been so by an earlier try.
   */
  async create(key: string, bytes: Uint8Array, signal?: AbortSignal): Promise<boolean> {
    const response = await this.#send('creating', key, { method: 'PUT', headers: { 'if-none-match': '*', 'content-type': 'application/octet-stream' }, body: bytes as Uint8Array<ArrayBuffer> }, signal, NOT_CREATED);
    await response.arrayBuffer();
    // AWS answers 409 to creators that race; which of them wins is seen by reading.
    return response.ok;
  }

  async get(key: string, signal?: AbortSignal): Promise<S3Object | undefined> {
    const response = await this.#send('reading', key, { method: 'GET' }, signal, new Set([404]));
    if (response.status === 404) {
      await response.arrayBuffer();
      return undefined;
    }
    const bytes = new Uint8Array(await this.#finish(response.arrayBuffer(), 'reading', key));
    return { bytes, modified: Date.parse(response.headers.get('last-modified') ?? '') };
  }

  async has(key: string): Promise<boolean> {
    return (await this.#send('looking for', key, { method: 'HEAD' }, undefined, new Set([404]))).ok;
  }

  /** Deletes an object; nothing happens if there is none. */
  async delete(key: string): Promise<void> {
    await (await this.#send('deleting', key, { method: 'DELETE' }, undefined, new Set([404]))).arrayBuffer();
  }

  deleteAll(keys: readonly string[]): Promise<unknown> {
    return inParallel(keys, (key) => this.delete(key));
  }

  /** Keys with a prefix, in order, a thousand or `pageSize` at a time. */
  async *pages(prefix: string, pageSize = 1000): AsyncGenerator<readonly string[]> {
    for (let token: string | undefined; ;) {
      const query = new URLSearchParams({ 'list-type': '2', 'encoding-type': 'url', prefix: this.#prefix + prefix, 'max-keys': String(pageSize) });
      if (token !== undefined) query.set('continuation-token', token);
      const response = await this.#send('listing', `?${query}`, { method: 'GET' }, undefined);
      const text = new TextDecoder().decode(await this.#finish(response.arrayBuffer(), 'listing', prefix));
      yield [...text.matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = '']) => decodeURIComponent(key.replaceAll('+', ' ')).slice(this.#prefix.length));
      token = /<IsTruncated>\s*true/.test(text) ? /<NextContinuationToken>([^<]*)</.exec(text)?.[1]?.replaceAll('&amp;', '&') : undefined;
      if (token === undefined) return;
    }
  }

  async list(prefix: string): Promise<string[]> {
    const keys: string[] = [];
    for await (const page of this.pages(prefix)) keys.push(...page);
    return keys;
  }

  async first(prefix: string): Promise<string | undefined> {
    for await (const [key] of this.pages(prefix, 1)) return key;
    return undefined;
  }

  async #send(what: string, key: string, init: RequestInit, signal: AbortSignal | undefined, expected: ReadonlySet<number> = new Set()): Promise<Response> {
    const { credentials, region = 'us-east-1', timeout = 30_000, fetch: send = (request) => fetch(request) } = this.#options;
    const url = key.startsWith('?') ? `${this.#root}${key}` : `${this.#root}/${(this.#prefix + key).split('/').map(encodeURIComponent).join('/')}`;
    const keys = typeof credentials === 'function' ? await credentials() : credentials;
    const client = new AwsClient({ accessKeyId: keys.accessKeyId, secretAccessKey: keys.secretAccessKey, ...(keys.sessionToken === undefined ? {} : { sessionToken: keys.sessionToken }), service: 's3', region, retries: 0 });
    signal?.throwIfAborted();
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(new Error(`no answer within ${timeout} ms`)), timeout);
    const abort = (): void => limit.abort(signal?.reason);
    signal?.addEventListener('abort', abort);
    let response: Response;
    try {
      response = await send(await client.sign(url, { ...init, signal: limit.signal }));
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason;
      throw logUnavailable(`${what} ${key} in the bucket ${this.#options.bucket}: ${limit.signal.aborted ? String(limit.signal.reason?.message) : String(error)}`, error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    }
    if (response.ok || expected.has(response.status)) return response;
    const text = await response.text().catch(() => '');
    const code = /<Code>([^<]*)</.exec(text)?.[1] ?? '';
    const message = `${what} ${key} in the bucket ${this.#options.bucket}: the server answers ${response.status} ${code}`;
    throw response.status >= 500 && response.status !== 501 || RETRYABLE.has(response.status) ? logUnavailable(message) : logRefused(message);
  }

  async #finish<T>(body: Promise<T>, what: string, key: string): Promise<T> {
    try {
      return await body;
    } catch (error) {
      throw logUnavailable(`${what} ${key} in the bucket ${this.#options.bucket}: the answer ended too early`, error);
    }
  }
}

/** Calls `run` for all items, some at a time, and returns the results in order. */
export async function inParallel<T, R>(items: readonly T[], run: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = new Array(items.length);
  let next = 0;
  await Promise.all(Array.from({ length: Math.min(PARALLEL, items.length) }, async () => {
    for (let at = next++; at < items.length; at = next++) results[at] = await run(items[at] as T);
  }));
  return results;
}

export { PARALLEL };
