// An S3-compatible service in memory, for the option `fetch` of the drivers. Objects can be damaged.
import type { S3DatabaseOptions } from '../../src/sync/s3/index.ts';

export class MemoryS3 {
  readonly objects = new Map<string, Uint8Array>();

  options(prefix = ''): S3DatabaseOptions {
    return {
      endpoint: 'http://s3.invalid', bucket: 'b', prefix, database: 'notes', probe: false,
      credentials: { accessKeyId: 'a', secretAccessKey: 'b' }, fetch: (request) => this.#answer(request),
    };
  }

  async #answer(request: Request): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url);
    const key = decodeURIComponent(pathname.slice('/b/'.length));
    if (searchParams.has('list-type')) return new Response(this.#list(searchParams.get('prefix') ?? ''));
    if (request.method === 'PUT') {
      if (this.objects.has(key)) return new Response('<Code>PreconditionFailed</Code>', { status: 412 });
      this.objects.set(key, new Uint8Array(await request.arrayBuffer()));
      return new Response('');
    }
    const found = this.objects.get(key);
    if (request.method === 'DELETE') this.objects.delete(key);
    if (request.method === 'DELETE') return new Response(null, { status: 204 });
    if (found === undefined) return new Response('<Code>NoSuchKey</Code>', { status: 404 });
    return new Response(request.method === 'HEAD' ? null : found.slice());
  }

  #list(prefix: string): string {
    const keys = [...this.objects.keys()].filter((key) => key.startsWith(prefix)).sort();
    return `<R>${keys.map((key) => `<Key>${encodeURIComponent(key)}</Key>`).join('')}<IsTruncated>false</IsTruncated></R>`;
  }
}
