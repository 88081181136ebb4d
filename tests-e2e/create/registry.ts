// A registry with the packed packages of this repository, so that `npm create mangrove-kv` and `npm install` run as they
// would after a release. All others come from the registry that npm is set to.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { basename } from 'node:path';

export interface Registry extends AsyncDisposable {
  readonly url: string;
  /** Names of our packages that were asked for. */
  readonly asked: Set<string>;
}

interface Packed {
  readonly manifest: { readonly name: string; readonly version: string };
  readonly bytes: Buffer;
  readonly file: string;
}

async function read(tarball: string): Promise<Packed> {
  const manifest = execFileSync('tar', ['-xzOf', tarball, 'package/package.json'], { encoding: 'utf8' });
  return {
    manifest: JSON.parse(manifest) as Packed['manifest'],
    bytes: await readFile(tarball),
    file: basename(tarball),
  };
}

/** What npm reads of a package before it fetches it. */
function packument({ manifest, bytes, file }: Packed, url: string): object {
  const { name, version } = manifest;
  const integrity = `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
  const dist = { tarball: `${url}-/${file}`, integrity };
  return { name, 'dist-tags': { latest: version }, versions: { [version]: { ...manifest, dist } } };
}

export async function startRegistry(tarballs: readonly string[]): Promise<Registry> {
  const upstream = execFileSync('npm', ['config', 'get', 'registry'], { cwd: tmpdir(), encoding: 'utf8' })
    .trim()
    .replace(/\/*$/, '/');
  const packages = await Promise.all(tarballs.map(read));
  const asked = new Set<string>();
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname).slice(1);
    const named = packages.find(({ manifest }) => manifest.name === path);
    const fetched = packages.find(({ file }) => path === `-/${file}`);
    if (named !== undefined) {
      asked.add(path);
      response.setHeader('content-type', 'application/json');
      // Another run may be on the same port, with other contents of the same version.
      response.setHeader('cache-control', 'no-store');
      response.end(JSON.stringify(packument(named, `http://${request.headers.host}/`)));
    } else if (fetched !== undefined) response.end(fetched.bytes);
    else response.writeHead(302, { location: new URL((request.url ?? '/').slice(1), upstream).href }).end();
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    asked,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}
