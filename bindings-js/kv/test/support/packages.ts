// The packages of this repository, as their manifests describe them.
import { existsSync, readFileSync, readdirSync } from 'node:fs';

const PACKAGES = new URL('../../../', import.meta.url);

export interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly exports?: Record<string, object | string>;
  readonly dependencies?: Record<string, string>;
  readonly peerDependencies?: Record<string, string>;
  /** Names of the entries that programs import. */
  readonly entries: readonly string[];
}

function manifestsIn(directory: URL): Manifest[] {
  return readdirSync(directory)
    .map((name) => new URL(`${name}/package.json`, directory))
    .filter((file) => existsSync(file))
    .map((file) => {
      const manifest = JSON.parse(readFileSync(file, 'utf8')) as Omit<Manifest, 'entries'>;
      const paths = Object.entries(manifest.exports ?? {})
        .filter(([, entry]) => typeof entry === 'object')
        .map(([path]) => path);
      return { ...manifest, entries: paths.map((path) => path.replace('.', manifest.name)) };
    });
}

export const manifests: readonly Manifest[] = ['./', 'adapters/', 'frameworks/'].flatMap((path) =>
  manifestsIn(new URL(path, PACKAGES)),
);
