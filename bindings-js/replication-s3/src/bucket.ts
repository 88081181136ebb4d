// A bucket of an S3-compatible server, of which only creating with `If-None-Match: *`, reading,
// listing and deleting are used.
import { AwsClient } from 'aws4fetch';
import { KvError } from 'mangrove-kv';
import { concat, inParallel } from '@mangrove-kv/replication/internal';
import { logRefused, logUnavailable } from '@mangrove-kv/replication';
import { Patience } from './patience.ts';

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
  /**
   * How long to wait for credentials, for an answer, and for each part of it, in milliseconds; a
   * body of more than a few KiB gets more time, for connections of 1 Mbit/s. Default: 30,000.
   */
  readonly timeout?: number | undefined;
  /** Default: that of the runtime. */
  readonly fetch?: ((request: Request) => Promise<Response>) | undefined;
}

export interface S3Object {
  readonly bytes: Uint8Array;
  readonly lastModified: string | null;
}

/** When an object was created, in milliseconds since 1970, by the server's clock. `refuse` gets what is wrong with the header. */
export function timeOf({ lastModified }: S3Object, refuse: (why: string) => never): number {
  if (lastModified === null) refuse('the header Last-Modified is missing, from which a record has its time');
  const time = Date.parse(lastModified);
  if (Number.isNaN(time)) refuse(`the header Last-Modified is ${JSON.stringify(lastModified)}, which is no time`);
  return time;
}

/** How many requests are under way at the same time, where there are many. */
export const PARALLEL = 16;
const NOT_CREATED = new Set([409, 412]);
const NOT_FOUND = new Set([404]);
const RETRYABLE = new Set([408, 425, 429]);
/** Services refuse signatures of a time from which theirs is further away than 15 minutes. */
const SKEW_MS = 60_000;
const EXPIRED = new Set(['ExpiredToken', 'ExpiredTokenException', 'TokenRefreshRequired']);
/** What a slow connection takes, of a body whose progress cannot be seen. */
const BYTES_PER_MS = 128;

type Init = RequestInit & { readonly body?: Uint8Array<ArrayBuffer> };

/** An answer whose body has arrived. */
interface Answer {
  readonly isOk: boolean;
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Uint8Array;
}

export class Bucket {
  readonly #options: S3Options;
  readonly #prefix: string;
  readonly #root: string;
  /** How far the service's clock is ahead of the device's, if a signature was refused for it. */
  #skew = 0;

  constructor(options: S3Options, folder = '') {
    const { endpoint, bucket, prefix = '' } = options;
    if (typeof endpoint !== 'string' || !/^https?:\/\//.test(endpoint))
      throw new KvError(
        'KV_INVALID_ARGUMENT',
        `endpoint has to be the address of an S3-compatible service, not ${String(endpoint)}`,
      );
    if (typeof bucket !== 'string' || bucket === '')
      throw new KvError('KV_INVALID_ARGUMENT', 'bucket has to be the name of a bucket');
    if (prefix !== '' && !prefix.endsWith('/'))
      throw new KvError('KV_INVALID_ARGUMENT', `prefix has to end with "/": ${prefix}`);
    this.#options = options;
    this.#root = `${endpoint.replace(/\/+$/, '')}/${bucket}`;
    this.#prefix = prefix + folder;
  }

  /** An object's key in the bucket, of which those of the methods are the end. */
  keyOf(key: string): string {
    return this.#prefix + key;
  }

  /**
   * Creates an object. Returns false if there is one, or if several creators raced and this one
   * did not win; an object that was not created may have been so by an earlier try.
   */
  async create(key: string, bytes: Uint8Array, signal?: AbortSignal): Promise<boolean> {
    const init = {
      method: 'PUT',
      headers: { 'if-none-match': '*', 'content-type': 'application/octet-stream' },
      body: bytes as Uint8Array<ArrayBuffer>,
    };
    // AWS answers 409 to creators that race; which of them wins is seen by reading.
    return (await this.#send('creating', key, init, signal, NOT_CREATED)).isOk;
  }

  async get(key: string, signal?: AbortSignal): Promise<S3Object | undefined> {
    const { isOk, bytes, headers } = await this.#send('reading', key, { method: 'GET' }, signal, NOT_FOUND);
    return isOk ? { bytes, lastModified: headers.get('last-modified') } : undefined;
  }

  async has(key: string): Promise<boolean> {
    return (await this.#send('looking for', key, { method: 'HEAD' }, undefined, NOT_FOUND)).isOk;
  }

  /** Deletes an object; nothing happens if there is none. */
  async delete(key: string): Promise<void> {
    await this.#send('deleting', key, { method: 'DELETE' }, undefined, NOT_FOUND);
  }

  deleteAll(keys: readonly string[]): Promise<unknown> {
    return inParallel(PARALLEL, keys, (key) => this.delete(key));
  }

  /** Keys with a prefix, in order, a thousand at a time. A hint: a listing may lag behind. */
  async *pages(prefix: string): AsyncGenerator<readonly string[]> {
    for (let token: string | undefined; ; ) {
      const query = new URLSearchParams({ 'list-type': '2', 'encoding-type': 'url', prefix: this.#prefix + prefix });
      if (token !== undefined) query.set('continuation-token', token);
      const text = textOf((await this.#send('listing', `?${query}`, { method: 'GET' }, undefined)).bytes);
      yield [...text.matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = '']) =>
        decodeURIComponent(key.replaceAll('+', ' ')).slice(this.#prefix.length),
      );
      token = /<IsTruncated>\s*true/.test(text)
        ? /<NextContinuationToken>([^<]*)</.exec(text)?.[1]?.replaceAll('&amp;', '&')
        : undefined;
      if (token === undefined) return;
    }
  }

  async list(prefix: string): Promise<string[]> {
    const keys: string[] = [];
    for await (const page of this.pages(prefix)) keys.push(...page);
    return keys;
  }

  async #send(
    what: string,
    key: string,
    init: Init,
    signal: AbortSignal | undefined,
    expected: ReadonlySet<number> = new Set(),
  ): Promise<Answer> {
    const { credentials, bucket } = this.#options;
    const skew = this.#skew;
    let answer = await this.#ask(what, key, init, skew, signal);
    if (answer.status === 403 && this.#isSkewed(answer, skew))
      answer = await this.#ask(what, key, init, this.#skew, signal);
    const { status } = answer;
    if (answer.isOk || expected.has(status)) return answer;
    const code = /<Code>([^<]*)</.exec(textOf(answer.bytes))?.[1] ?? '';
    const message = `${what} ${key} in the bucket ${bucket}: the server answers ${status} ${code}`;
    const isTransient =
      (status >= 500 && status !== 501) ||
      RETRYABLE.has(status) ||
      // The application can have newer ones next time.
      (typeof credentials === 'function' && EXPIRED.has(code));
    throw isTransient ? logUnavailable(message) : logRefused(message);
  }

  /** Whether the clocks differ otherwise than the request supposed; from here on that is known. An answer without a body has no code. */
  #isSkewed({ headers }: Answer, supposed: number): boolean {
    const skew = Date.parse(headers.get('date') ?? '') - Date.now();
    if (!(Math.abs(skew - supposed) > SKEW_MS)) return false;
    this.#skew = skew;
    return true;
  }

  async #ask(what: string, key: string, init: Init, skew: number, signal: AbortSignal | undefined): Promise<Answer> {
    const {
      credentials,
      bucket,
      region = 'us-east-1',
      timeout = 30_000,
      fetch: send = (request) => fetch(request),
    } = this.#options;
    const url = key.startsWith('?')
      ? `${this.#root}${key}`
      : `${this.#root}/${this.keyOf(key).split('/').map(encodeURIComponent).join('/')}`;
    const patience = new Patience(timeout, signal);
    try {
      const keys = await patience.wait(
        'no credentials',
        typeof credentials === 'function' ? credentials() : credentials,
      );
      const client = new AwsClient({
        accessKeyId: keys.accessKeyId,
        secretAccessKey: keys.secretAccessKey,
        ...(keys.sessionToken === undefined ? {} : { sessionToken: keys.sessionToken }),
        service: 's3',
        region,
        retries: 0,
      });
      const datetime = new Date(Date.now() + skew).toISOString().replace(/[-:]|\.\d+/g, '');
      const request = await client.sign(url, { ...init, signal: patience.signal, aws: { datetime } });
      const response = await patience.wait('no answer', send(request), (init.body?.length ?? 0) / BYTES_PER_MS);
      return {
        isOk: response.ok,
        status: response.status,
        headers: response.headers,
        bytes: await readBody(response, patience),
      };
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason;
      throw logUnavailable(`${what} ${key} in the bucket ${bucket}: ${reasonOf(error)}`, error);
    } finally {
      patience.end();
    }
  }
}

async function readBody(response: Response, patience: Patience): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  const parts: Uint8Array[] = [];
  for (;;) {
    const step = reader === undefined ? undefined : await patience.wait('the answer stopped', reader.read());
    if (step === undefined || step.done) return concat(parts);
    parts.push(step.value);
  }
}

const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** The message of an error, and of what caused it: that of `fetch` says nothing. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause === undefined) return error.message;
  return `${error.message}: ${cause instanceof Error ? cause.message || String((cause as { readonly code?: unknown }).code) : String(cause)}`;
}
