// The servers of a run: a log and a store of objects, what can happen to them, and how devices reach them.
import type { RemoteLog, SnapshotStore } from '@mangrove-kv/replication';
import { natsLog } from '@mangrove-kv/replication-nats';
import type { NatsCredentials, NatsLogOptions } from '@mangrove-kv/replication-nats';
import { s3Log, s3Snapshots } from '@mangrove-kv/replication-s3';
import type { Random } from './random.ts';

/** A bucket, in a form that another process can be told. */
export interface BucketAddress {
  readonly endpoint: string;
  readonly bucket: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
  readonly timeout: number;
}

/** Where logs are, in a form that another process can be told. */
export type LogAddress =
  | { readonly type: 'nats'; readonly servers: readonly string[]; readonly apiPrefix: string; readonly timeout: number }
  | { readonly type: 's3'; readonly bucket: BucketAddress };

export interface LogAccess {
  readonly connect?: NatsLogOptions['connect'];
  readonly credentials?: () => Promise<NatsCredentials>;
}

/** How often devices ask a bucket for new records, in milliseconds. */
const POLL_MS = 1000;

export function openLog(
  address: LogAddress,
  database: string,
  device: string,
  { connect, credentials }: LogAccess = {},
): RemoteLog {
  if (address.type === 's3') return s3Log({ ...address.bucket, database, pollInterval: POLL_MS });
  const { servers, apiPrefix, timeout } = address;
  return natsLog({ servers, database, device, apiPrefix, timeout, credentials, connect });
}

export const openStore = (address: BucketAddress): SnapshotStore => s3Snapshots(address);

/** Ends by itself, and lets everything run again. */
export type Fault = (random: Random) => Promise<void>;

export interface World {
  readonly log: LogAddress;
  readonly store: BucketAddress;
  /** All that have the log: each is read at the end. */
  readonly readers: readonly LogAddress[];
  readonly faults: Readonly<Record<string, Fault>>;
  /** What takes from the log what it had acknowledged. */
  readonly losses: Readonly<Record<string, Fault>>;
  /** A token of a device; undefined: the servers want none. */
  readonly credentials: ((database: string, device: string, expiresIn: number) => Promise<NatsCredentials>) | undefined;
  /** Whether appends on condition that the log is at its end work across devices. */
  readonly hasConditions: boolean;
  /** Starts what does not run. */
  recover(): Promise<void>;
  stop(): Promise<void>;
}

export const pause = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Rejects if something takes longer than some milliseconds. */
export function inTime<T>(what: string, promise: Promise<T>, milliseconds: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} takes more than ${milliseconds / 1000} s`)), milliseconds);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
