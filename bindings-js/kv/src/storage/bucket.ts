// Storage buckets: parts of an origin's storage that the browser keeps and evicts one by one.
import { KvError } from '../base/errors.ts';

/** The parts of `StorageBucket` that are used. The DOM types lack it. */
interface StorageBucket {
  readonly indexedDB: IDBFactory;
  getDirectory(): Promise<FileSystemDirectoryHandle>;
}

interface StorageBucketManager {
  open(name: string, options?: object): Promise<StorageBucket>;
  keys(): Promise<string[]>;
}

/** @throws KvError KV_UNSUPPORTED where there are none. */
export function storageBuckets(): StorageBucketManager {
  const found = (globalThis.navigator as { readonly storageBuckets?: StorageBucketManager } | undefined)
    ?.storageBuckets;
  if (found !== undefined) return found;
  throw new KvError(
    'KV_UNSUPPORTED',
    'this browser has no storage buckets, or the page is not served over HTTPS; leave out the option bucket to use the storage of the whole origin',
  );
}

/** Buckets that were opened last, by name. Chromium never answers requests to the IndexedDB of one that is collected. */
const kept = new Map<string, StorageBucket>();

/** Opens a bucket; `undefined` if it is missing and `create` is false. */
export async function openBucket(name: string, create: boolean): Promise<StorageBucket | undefined> {
  const buckets = storageBuckets();
  if (!create && !(await buckets.keys()).includes(name)) return undefined;
  // Again each time: one of that name may have been removed in the meantime.
  const bucket = await buckets.open(name);
  kept.set(name, bucket);
  return bucket;
}
