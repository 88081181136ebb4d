// Whether a bucket keeps the promises that everything here rests on.
import { inParallel } from '@mangrove-kv/replication/internal';
import { logRefused } from '@mangrove-kv/replication';
import { Bucket, timeOf } from './bucket.ts';
import type { S3Object, S3Options } from './bucket.ts';

const ROUNDS = 24;
const RACERS = 8;
const READERS = 3;
const PASSED = 'probe/passed-2';

/**
 * Lets several creators race for one key, many times: exactly one may win, readers must find what it
 * wrote at once, though they looked for it before, and with the same `Last-Modified`; and nobody may
 * replace it later. Rejects with `KV_LOG_REFUSED` if the bucket does not keep to that, as a database
 * in it could lose acknowledged records. It takes about 500 requests, and leaves no objects but one
 * that says that the bucket has passed. `again` ignores that one.
 */
export async function probeBucket(
  options: S3Options,
  { again = false }: { readonly again?: boolean } = {},
): Promise<void> {
  const bucket = new Bucket(options);
  if (!again && (await bucket.has(PASSED))) return;
  const folder = `probe/${[...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0')).join('')}/`;
  try {
    for (let round = 0; round < ROUNDS; round++) await race(bucket, `${folder}${round}`, options);
  } finally {
    await bucket.deleteAll(Array.from({ length: ROUNDS }, (_, round) => `${folder}${round}`)).catch(() => undefined);
  }
  await bucket.create(PASSED, new Uint8Array());
}

async function race(bucket: Bucket, key: string, { bucket: name, endpoint }: S3Options): Promise<void> {
  const refuse = (why: string): never => {
    throw logRefused(
      `the bucket ${name} at ${endpoint} is refused: ${why}; use a service that creates objects with "If-None-Match: *" atomically, shows them at once, and sends Last-Modified (docs/REPLICATION-SERVERS.md)`,
    );
  };
  const times = new Set<number>();
  // Of different lengths: they take different times on their way.
  const bodies = Array.from({ length: RACERS }, (_, racer) => new Uint8Array(1 + racer * 4096).fill(racer + 1));
  const read = (): Promise<readonly (S3Object | undefined)[]> =>
    inParallel(READERS, bodies.slice(0, READERS), () => bucket.get(key));
  // A service may remember for a while that there is no such object.
  if ((await read()).some((found) => found !== undefined) || (await bucket.has(key)))
    refuse('it has an object that nobody created');
  const won = await inParallel(RACERS, bodies, (body) => bucket.create(key, body));
  const winners = won.flatMap((hasWon, racer) => (hasWon ? [racer] : []));
  if (winners.length !== 1)
    refuse(`${winners.length} of ${RACERS} creators of one object were told that they created it`);
  const winner = bodies[winners[0] as number] as Uint8Array;
  const check = async (otherwise: string): Promise<void> => {
    for (const found of await read()) {
      if (found === undefined) return refuse('an object that was created is not found');
      if (found.bytes.length !== winner.length || found.bytes[0] !== winner[0]) refuse(otherwise);
      times.add(timeOf(found, refuse));
    }
    if (!(await bucket.has(key))) refuse('an object that was created is not found by HEAD');
    if (times.size > 1)
      refuse('the header Last-Modified of an object changes: devices would disagree on the time of a record');
  };
  await check('an object that was created has the content of another creator');
  if (await bucket.create(key, new Uint8Array([255]))) refuse('an object that exists was created again');
  await check('an object was replaced by a creator that was told that it exists');
}
