// Names of subjects and streams. A database's records, and what belongs to them, are below
// `oplog.<shard>.<database>`:
//
//     oplog.<shard>.<database>.<device>           records
//     oplog.<shard>.<database>.<device>.confirm   written to prove that a read is current
//     oplog.<shard>.<database>.<device>.floor     how far the log is purged
//     manifest.<shard>.<database>                 the newest one only, in a stream of its own
import { KvError } from 'mangrove-kv';

const DEVICE = /^[A-Za-z0-9_-]{1,64}$/;
const PLAIN_BYTE = /[A-Za-z0-9_-]/;
const MAX_TOKEN = 200;

/** Republished records have this before their subject. */
export const LIVE = 'live.';

export interface Names {
  readonly shard: number;
  /** The token of the database in subjects. */
  readonly database: string;
  readonly device: string;
  readonly stream: string;
  readonly manifests: string;
  /** Where this device writes. */
  readonly own: string;
  readonly confirm: string;
  readonly floor: string;
  /** All records, and nothing else. */
  readonly records: string;
  /** Records and what belongs to them. */
  readonly all: string;
  /** What belongs to records. */
  readonly extras: string;
  readonly manifest: string;
  /** The prefix of subjects that replies go to. */
  readonly inbox: string;
}

/** A name as one token of a subject: bytes of UTF-8 that are no letter, digit, `-` or `_` become `=` and two hex digits. */
export function subjectToken(name: string): string {
  if (typeof name !== 'string' || name === '')
    throw new KvError('KV_INVALID_ARGUMENT', 'database has to be the name of a database, which is not empty');
  let token = '';
  for (const byte of new TextEncoder().encode(name)) {
    const char = String.fromCharCode(byte);
    token += PLAIN_BYTE.test(char) ? char : `=${byte.toString(16).padStart(2, '0')}`;
  }
  if (token.length > MAX_TOKEN)
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `the database's name takes ${token.length} bytes in a subject, and at most ${MAX_TOKEN} are allowed: ${name}`,
    );
  return token;
}

/** FNV-1a of the token. It says where existing databases are, so it never changes. */
export function shardOf(token: string, shards: number): number {
  if (!Number.isInteger(shards) || shards < 1 || shards > 4096)
    throw new KvError('KV_INVALID_ARGUMENT', `shards has to be a whole number from 1 to 4096, not ${shards}`);
  let hash = 0x811c9dc5;
  for (let at = 0; at < token.length; at++) hash = Math.imul(hash ^ token.charCodeAt(at), 0x01000193) >>> 0;
  return hash % shards;
}

export const streamOf = (shard: number): string => `OPLOG${shard}`;
export const manifestsOf = (shard: number): string => `MANIFEST${shard}`;

export function namesOf({
  database: name,
  device,
  shards = 1,
}: {
  readonly database: string;
  readonly device: string;
  readonly shards?: number | undefined;
}): Names {
  if (typeof device !== 'string' || !DEVICE.test(device)) {
    throw new KvError(
      'KV_INVALID_ARGUMENT',
      `device has to be 1 to 64 letters, digits, "-" and "_", not ${JSON.stringify(device)}`,
    );
  }
  const database = subjectToken(name);
  const shard = shardOf(database, shards);
  const root = `oplog.${shard}.${database}`;
  const own = `${root}.${device}`;
  return {
    shard,
    database,
    device,
    stream: streamOf(shard),
    manifests: manifestsOf(shard),
    own,
    confirm: `${own}.confirm`,
    floor: `${own}.floor`,
    records: `${root}.*`,
    all: `${root}.>`,
    extras: `${root}.*.*`,
    manifest: `manifest.${shard}.${database}`,
    inbox: `_INBOX.${database}.${device}`,
  };
}

/** The device that a subject belongs to. */
export const senderOf = (subject: string): string | undefined => subject.split('.')[3];

/** What a subject below a database's is for. */
export function kindOf(subject: string): 'record' | 'confirm' | 'floor' {
  const kind = subject.split('.')[4];
  return kind === undefined ? 'record' : kind === 'floor' ? 'floor' : 'confirm';
}
