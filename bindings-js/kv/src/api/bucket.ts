// Checks the option `bucket`. A part of the package that few programs load.
import { KvError } from '../base/errors.ts';

/** The rule for the names of storage buckets. */
const NAME = /^[a-z0-9][a-z0-9_-]{0,63}$/;

/** @throws KvError KV_INVALID_ARGUMENT if it is given and no name of a bucket. */
export function checkBucketName(name: string | undefined): string | undefined {
  if (name === undefined || (typeof name === 'string' && NAME.test(name))) return name;
  throw new KvError(
    'KV_INVALID_ARGUMENT',
    'the name of a bucket has to be a string of up to 64 of the characters a-z, 0-9, "_" and "-", of which the first is a letter or digit',
  );
}

/** Outside browsers. */
export function noBuckets(): KvError {
  return new KvError('KV_UNSUPPORTED', 'storage buckets exist in browsers only; leave out the option bucket');
}
