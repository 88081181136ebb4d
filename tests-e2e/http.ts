// Serves a directory as a web server would, with the headers that a test requests.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';

export const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.wasm': 'application/wasm',
  '.json': 'application/json',
  '.webmanifest': 'application/manifest+json',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
};

/** Only the page's own origin; WebAssembly may be compiled, but text may not be evaluated. */
export const STRICT_CSP =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src data:";

export interface Server extends AsyncDisposable {
  readonly url: string;
}

/** The file for a URL path, and its content type. */
export function fileOf(directory: string, urlPath: string): { file: string; type: string } {
  const path = normalize(decodeURIComponent(urlPath));
  const file = join(directory, path.endsWith('/') ? `${path}index.html` : path);
  return { file, type: TYPES[extname(file)] ?? 'application/octet-stream' };
}

export async function serve(directory: string, headers: Record<string, string> = {}): Promise<Server> {
  const server = createServer(async (request, response) => {
    const { file, type } = fileOf(directory, new URL(request.url ?? '/', 'http://localhost').pathname);
    try {
      const body = await readFile(file);
      response.writeHead(200, { 'content-type': type, ...headers }).end(body);
    } catch {
      response.writeHead(404, headers).end();
    }
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}
