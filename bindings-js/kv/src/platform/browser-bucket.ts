// What databases in storage buckets need. The browser entry loads this module only if `open` names one.
import { checkBucketName } from '../api/bucket.ts';
import type { CheckedOptions } from '../api/options.ts';
import { abortable, checkBoolean, checkCount, checkOneOf } from '../base/async.ts';
import { KvError } from '../base/errors.ts';
import { checkNames } from '../base/names.ts';
import type { Names } from '../base/names.ts';
import { openBucket, storageBuckets } from '../storage/bucket.ts';
import { toKvError } from '../storage/opfs.ts';
import { BROWSER_MS, within } from '../storage/support.ts';
import type { BucketOptions } from '../types/index.ts';

const BUCKET: Names<BucketOptions> = { name: 1, persisted: 1, durability: 1, quota: 1, expires: 1 };

function check(bucket: string | BucketOptions): BucketOptions {
  if (typeof bucket === 'string') return { name: checkBucketName(bucket) as string };
  checkNames('bucket', bucket, BUCKET);
  const { name, persisted, durability, quota, expires } = bucket;
  if (checkBucketName(name) === undefined) throw new KvError('KV_INVALID_ARGUMENT', 'bucket has to have a name');
  if (persisted !== undefined) checkBoolean('persisted', persisted);
  if (durability !== undefined) checkOneOf('durability of bucket', durability, ['strict', 'relaxed']);
  if (quota !== undefined && checkCount('quota', quota, Number.MAX_SAFE_INTEGER) < 1)
    throw new KvError('KV_INVALID_ARGUMENT', 'quota has to be at least 1');
  if (expires !== undefined && !(typeof expires === 'number' && expires > Date.now() && expires < Infinity))
    throw new KvError('KV_INVALID_ARGUMENT', 'expires has to be a Unix time in milliseconds in the future');
  return { name, persisted, durability, quota, expires };
}

/**
 * Opens the bucket with its options, for which the browser may ask the user, so here and not in the
 * worker, and returns the options with its name.
 *
 * @throws KvError KV_UNSUPPORTED where there are no buckets; KV_INVALID_ARGUMENT for options that are
 * wrong, or a storage that is in no bucket.
 */
export async function inBucket(options: CheckedOptions, bucket: string | BucketOptions): Promise<CheckedOptions> {
  const { name, ...given } = check(bucket);
  const { storage, engine, signal } = options;
  if (typeof storage === 'object' || storage === 'memory')
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      'bucket applies to the storages "opfs" and "indexeddb" only; leave it out',
    );
  const canCreate = engine.create && !engine.readOnly;
  // Members that are undefined would be taken for values.
  const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const opening = canCreate ? storageBuckets().open(name, defined) : openBucket(name, false);
  try {
    await abortable(within(Promise.resolve(opening), BROWSER_MS, `opening the bucket ${name}`), signal);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw toKvError(error, `open the bucket ${name}`);
  }
  return { ...options, bucket: name };
}
