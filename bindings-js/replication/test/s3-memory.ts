// An S3-compatible service in memory, which can break the promises that the drivers need.
import type { S3Options } from '../../replication-s3/src/index.ts';

export interface S3Faults {
  /** Listings show what was there when this became true, and nothing since. */
  areListingsLate: boolean;
  /** A key that was not found stays so for this many further reads. */
  lateReads: number;
  /** `If-None-Match` is ignored: an object is replaced, or the creator is told so and it is not. */
  isConditionIgnored: false | 'replaces' | 'keeps';
  /** The header Last-Modified; undefined: none. */
  lastModified: (created: number) => string | undefined;
  /** The service's clock. Signatures of another time are refused, as by AWS. */
  clock: () => number;
}

const MAX_SKEW_MS = 900_000;

/** `20260102T030405Z` */
const timeOfSignature = (request: Request): number =>
  Date.parse(
    (request.headers.get('x-amz-date') ?? '').replace(
      /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/,
      '$1-$2-$3T$4:$5:$6Z',
    ),
  );

export class S3Memory {
  readonly faults: S3Faults = {
    areListingsLate: false,
    lateReads: 0,
    isConditionIgnored: false,
    lastModified: (created) => new Date(created).toUTCString(),
    clock: Date.now,
  };
  readonly options: S3Options = {
    endpoint: 'http://s3.invalid',
    bucket: 'bucket',
    credentials: { accessKeyId: 'id', secretAccessKey: 'secret' },
    fetch: (request) => this.#answer(request),
  };
  readonly objects = new Map<string, Uint8Array>();
  /** When each object was created through the service. */
  readonly #created = new Map<string, number>();
  requests = 0;
  /** Keys of the listings that are late. */
  #listed: readonly string[] | undefined;
  readonly #missed = new Map<string, number>();

  async #answer(request: Request): Promise<Response> {
    this.requests++;
    const now = this.faults.clock();
    if (!(Math.abs(timeOfSignature(request) - now) <= MAX_SKEW_MS)) {
      const body = request.method === 'HEAD' ? null : '<Error><Code>RequestTimeTooSkewed</Code></Error>';
      return new Response(body, { status: 403, headers: { date: new Date(now).toUTCString() } });
    }
    const url = new URL(request.url);
    const key = decodeURIComponent(url.pathname.replace(/^\/bucket\/?/, ''));
    if (!this.faults.areListingsLate) this.#listed = undefined;
    else this.#listed ??= [...this.objects.keys()];
    if (url.searchParams.has('list-type')) return this.#list(url.searchParams);
    switch (request.method) {
      case 'PUT':
        return this.#put(
          key,
          new Uint8Array(await request.arrayBuffer()),
          request.headers.get('if-none-match') === '*',
        );
      case 'DELETE':
        this.objects.delete(key);
        return new Response(null, { status: 204 });
      default:
        return this.#read(key, request.method === 'HEAD');
    }
  }

  #list(query: URLSearchParams): Response {
    const [prefix, from, size] = [
      query.get('prefix') ?? '',
      query.get('continuation-token') ?? '',
      Number(query.get('max-keys') ?? 1000),
    ];
    const keys = (this.#listed ?? [...this.objects.keys()])
      .filter((key) => key.startsWith(prefix) && key > from)
      .sort();
    const page = keys.slice(0, size);
    const next =
      keys.length > size
        ? `<IsTruncated>true</IsTruncated><NextContinuationToken>${page.at(-1)}</NextContinuationToken>`
        : '<IsTruncated>false</IsTruncated>';
    return new Response(
      `<ListBucketResult>${page.map((key) => `<Contents><Key>${encodeURIComponent(key)}</Key></Contents>`).join('')}${next}</ListBucketResult>`,
    );
  }

  #put(key: string, bytes: Uint8Array<ArrayBuffer>, isConditional: boolean): Response {
    const { isConditionIgnored } = this.faults;
    const isThere = this.objects.has(key);
    if (isThere && isConditional && isConditionIgnored === false)
      return new Response('<Error><Code>PreconditionFailed</Code></Error>', { status: 412 });
    if (!isThere || isConditionIgnored !== 'keeps') {
      this.objects.set(key, bytes);
      this.#created.set(key, Date.now());
    }
    return new Response();
  }

  #read(key: string, isHead: boolean): Response {
    const found = this.objects.get(key);
    const left = this.#missed.get(key) ?? 0;
    if (found === undefined) this.#missed.set(key, this.faults.lateReads);
    else if (left > 0) this.#missed.set(key, left - 1);
    if (found === undefined || left > 0)
      return new Response(isHead ? null : '<Error><Code>NoSuchKey</Code></Error>', { status: 404 });
    const lastModified = this.faults.lastModified(this.#created.get(key) ?? 0);
    return new Response(isHead ? null : found.slice(), {
      headers: lastModified === undefined ? {} : { 'last-modified': lastModified },
    });
  }
}
