// Arguments of `archive` and `restore --at`. Secrets come from the environment and from files: others
// on the machine can see arguments, and the shell keeps them.
import process from 'node:process';
import { parseArgs } from 'node:util';
import type { Encryption } from 'mangrove-kv';
import { invalid } from '../failure.ts';
import { readKey, readKeyBytes, readPassphrase, readText } from '../key-file.ts';
import type {
  NatsCredentials,
  PrefixMode,
  S3Options,
  Seal,
  ReplicationCodec,
  ReplicatedCollectionOptions,
  ReplicationMode,
} from './replication.ts';

/** A zone has to be named: a local time is another one on each machine. */
const TIME = /^(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)$/;
const PREFIX_MODE = /^(.*?):(strict|merge):(.*)$/s;
const COLLECTION = /^(.*?)((?::(?:strict|merge|key=[^:]+|value=[^:]+))*)$/s;

const BUCKET = {
  bucket: { type: 'string' },
  endpoint: { type: 'string' },
  region: { type: 'string' },
  prefix: { type: 'string' },
  'seal-file': { type: 'string' },
  'seal-database': { type: 'string' },
  help: { type: 'boolean', short: 'h' },
} as const;

const ARCHIVE = {
  ...BUCKET,
  nats: { type: 'string', multiple: true },
  'nats-credentials': { type: 'string' },
  'nats-device': { type: 'string' },
  'nats-api-prefix': { type: 'string' },
  shards: { type: 'string' },
  's3-log': { type: 'boolean' },
  snapshot: { type: 'boolean' },
} as const;

const RESTORE = {
  ...BUCKET,
  at: { type: 'string' },
  'at-position': { type: 'string' },
  database: { type: 'string' },
  collection: { type: 'string', multiple: true },
  'prefix-mode': { type: 'string', multiple: true },
  'skip-damaged': { type: 'boolean' },
  'key-file': { type: 'string' },
  'passphrase-file': { type: 'string' },
  progress: { type: 'boolean' },
} as const;

const BUCKET_HELP = `\
      --bucket NAME            bucket of the archive and of the database's snapshots
      --endpoint URL           address of the S3-compatible service; default: AWS_ENDPOINT_URL
      --region REGION          default: AWS_REGION, or us-east-1
      --prefix PREFIX/         what all keys in the bucket start with
      --seal-file FILE         key of a sealed database: 16 or 32 bytes, or hexadecimal digits
      --seal-database NAME     the database's name in its seal; default: the same
  -h, --help                   prints this

AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN are the keys of the bucket.
`;

export const ARCHIVE_HELP = `\
Copies the log of a replicated database into its archive in a bucket.

Usage: mangrove-kv archive DATABASE --bucket NAME --endpoint URL (--nats URL… | --s3-log) [--snapshot]

It archives what the log has got since the last time, and may be killed, repeated, and run by several
at once. Prints {"database":…,"from":…,"position":…,"snapshot":…,"gap":…}.

      --nats URL               server of the log; repeat it for each server of a cluster
      --nats-credentials FILE  a file of NATS (.creds), or JSON as natsLog takes it
      --nats-device ID         device for which the credentials are; default: archive
      --nats-api-prefix NAME   default: $JS.API
      --shards N               over how many streams databases are spread; default: 1
      --s3-log                 the log is in the bucket
      --snapshot               also copies the newest snapshot, so that restoring takes less time
${BUCKET_HELP}`;

export const RESTORE_HELP = `\
Makes a new database of what a replicated one was at a point in time, from its archive in a bucket.

Usage: mangrove-kv restore TARGET (--at TIME | --at-position N) --database NAME --bucket NAME
       --endpoint URL --collection NAME[:strict][:key=ID][:value=ID]…

TARGET appears only after the whole database has been verified. A killed command leaves a directory
TARGET.restoring-…, which can be removed. Prints a JSON report.

      --at TIME                by the log's clock, with a zone: 2026-11-25T12:00:00Z
      --at-position N          up to this position of the log
      --database NAME          whose archive it is
      --collection SPEC        a collection to restore: its name, :strict if that is its mode, and the ids
                               of its codecs if they are not the default ones (any and structured);
                               without a name it is the default collection
      --prefix-mode SPEC       keys of a collection with a mode of their own: NAME:strict:PREFIX, or
                               NAME:merge:PREFIX, with a prefix in JSON, such as 'shop:strict:["stock"]'
      --skip-damaged           passes over what the log itself had lost or damaged, as devices do
      --key-file FILE          encrypts the new database with a key of 32 bytes, or 64 hexadecimal digits
      --passphrase-file FILE   encrypts it with a passphrase; a line end after it is not part of it
      --progress               shows progress even if standard error is not a terminal
${BUCKET_HELP}`;

/** Parses, with a `KvError` if it cannot. */
function parse<T extends NonNullable<Parameters<typeof parseArgs>[0]>>(config: T): ReturnType<typeof parseArgs<T>> {
  try {
    return parseArgs<T>(config);
  } catch (error) {
    throw invalid(
      `${(error as Error).message.replace(/\.? To specify a positional argument.*$/s, '')}; --help shows all arguments`,
    );
  }
}

function required(value: string | undefined, name: string): string {
  if (value === undefined || value === '') throw invalid(`${name} is missing; --help shows all arguments`);
  return value;
}

/** A number from `least` on. */
function count(text: string, name: string, least: number): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(number) || number < least)
    throw invalid(`${name} has to be a whole number from ${least} on, not ${text}`);
  return number;
}

function only(positionals: readonly string[], name: string): string {
  if (positionals.length > 1)
    throw invalid(`${JSON.stringify(positionals[1])} is one argument too many; --help shows all arguments`);
  return required(positionals[0], name);
}

interface BucketValues {
  readonly bucket?: string | undefined;
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  readonly prefix?: string | undefined;
}

function toBucket({ bucket, endpoint, region, prefix }: BucketValues): S3Options {
  const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL } = process.env;
  const credentials = {
    accessKeyId: required(AWS_ACCESS_KEY_ID, 'AWS_ACCESS_KEY_ID in the environment'),
    secretAccessKey: required(AWS_SECRET_ACCESS_KEY, 'AWS_SECRET_ACCESS_KEY in the environment'),
    ...(AWS_SESSION_TOKEN !== undefined && AWS_SESSION_TOKEN !== '' && { sessionToken: AWS_SESSION_TOKEN }),
  };
  return {
    bucket: required(bucket, '--bucket'),
    endpoint: required(endpoint ?? AWS_ENDPOINT_URL, '--endpoint'),
    region: region ?? AWS_REGION,
    prefix,
    credentials,
  };
}

async function toSeal(file: string | undefined, database: string): Promise<Seal | undefined> {
  if (file === undefined) return undefined;
  const key = await crypto.subtle.importKey('raw', readKeyBytes(file, [16, 32]), 'AES-GCM', false, [
    'encrypt',
    'decrypt',
  ]);
  return { key, database };
}

function readCredentials(file: string): NatsCredentials {
  const text = readText(file);
  const block = (name: string): string | undefined =>
    new RegExp(`-+BEGIN ${name}-+\\s*(\\S+)\\s*-+END ${name}-+`).exec(text)?.[1];
  const [jwt, seed] = [block('NATS USER JWT'), block('USER NKEY SEED')];
  if (jwt !== undefined && seed !== undefined) return { jwt, seed };
  try {
    const found = JSON.parse(text) as Record<string, unknown>;
    const isGiven = (...names: readonly string[]): boolean => names.every((name) => typeof found[name] === 'string');
    if (isGiven('jwt', 'seed') || isGiven('user', 'password') || isGiven('token')) return found as NatsCredentials;
  } catch {
    // Neither of the two.
  }
  throw invalid(
    `${file} holds no credentials of NATS: neither the two blocks of a .creds file, nor JSON as natsLog takes it`,
  );
}

export interface ArchiveArguments {
  readonly database: string;
  readonly bucket: S3Options;
  /** Undefined: the log is in the bucket. */
  readonly nats:
    | {
        readonly servers: readonly string[];
        readonly credentials: NatsCredentials | undefined;
        readonly device: string;
        readonly apiPrefix: string | undefined;
        readonly shards: number;
      }
    | undefined;
  readonly seal: Seal | undefined;
  readonly snapshot: boolean;
}

/** Undefined if help is asked for. */
export async function toArchiveArguments(args: readonly string[]): Promise<ArchiveArguments | undefined> {
  const { values, positionals } = parse({ args: [...args], options: ARCHIVE, allowPositionals: true, strict: true });
  if (values.help === true) return undefined;
  const database = only(positionals, 'the name of the database');
  const { nats: servers = [], shards = '1' } = values;
  const isInBucket = values['s3-log'] === true;
  if (isInBucket === servers.length > 0)
    throw invalid('the log is either at --nats URL or in the bucket, with --s3-log: name one of the two');
  const file = values['nats-credentials'];
  return {
    database,
    bucket: toBucket(values),
    nats: isInBucket
      ? undefined
      : {
          servers,
          device: values['nats-device'] ?? 'archive',
          apiPrefix: values['nats-api-prefix'],
          shards: count(shards, '--shards', 1),
          credentials: file === undefined ? undefined : readCredentials(file),
        },
    seal: await toSeal(values['seal-file'], values['seal-database'] ?? database),
    snapshot: values.snapshot === true,
  };
}

export interface RestoreArguments {
  readonly target: string;
  readonly database: string;
  readonly bucket: S3Options;
  readonly point: { readonly time: number } | { readonly position: number };
  readonly collections: { readonly [name: string]: ReplicatedCollectionOptions };
  readonly seal: Seal | undefined;
  readonly encryption: Encryption | undefined;
  readonly skipDamaged: boolean;
  readonly isProgressWanted: boolean;
}

/** Undefined if help is asked for. */
export async function toRestoreArguments(args: readonly string[]): Promise<RestoreArguments | undefined> {
  // `restore --at --help` is what the help of the other `restore` names.
  if (args.some((arg) => arg === '--help' || arg === '-h')) return undefined;
  const { values, positionals } = parse({ args: [...args], options: RESTORE, allowPositionals: true, strict: true });
  const target = only(positionals, 'the directory of the new database');
  const database = required(values.database, '--database');
  const { at, 'at-position': atPosition, 'key-file': keyFile, 'passphrase-file': passphraseFile } = values;
  if ((at === undefined) === (atPosition === undefined))
    throw invalid('a point in time is either --at or --at-position: name one of the two');
  if (keyFile !== undefined && passphraseFile !== undefined)
    throw invalid('a database has either a key or a passphrase: name one file');
  const point = at === undefined ? { position: count(atPosition as string, '--at-position', 0) } : { time: toTime(at) };
  const collections = toCollections(values.collection ?? [], values['prefix-mode'] ?? []);
  return {
    target,
    database,
    point,
    collections,
    bucket: toBucket(values),
    seal: await toSeal(values['seal-file'], values['seal-database'] ?? database),
    encryption:
      keyFile !== undefined
        ? readKey(keyFile)
        : passphraseFile !== undefined
          ? readPassphrase(passphraseFile)
          : undefined,
    skipDamaged: values['skip-damaged'] === true,
    isProgressWanted: values.progress === true,
  };
}

/** Milliseconds since 1970. */
export function toTime(text: string): number {
  const [, year, month, day] = TIME.exec(text)?.map(Number) ?? [];
  const time = Date.parse(text);
  const date = new Date(Date.UTC(year ?? 0, (month ?? 0) - 1, day));
  if (year === undefined || Number.isNaN(time) || date.getUTCMonth() + 1 !== month || date.getUTCDate() !== day) {
    throw invalid(
      `--at has to be a time with a zone, such as 2026-11-25T12:00:00Z or 2026-11-25T13:00:00+01:00, not ${text}`,
    );
  }
  return time;
}

const asStored = (id: string): ReplicationCodec => ({
  id,
  encode: (bytes: Uint8Array) => bytes,
  decode: (bytes) => bytes,
});

/** Bytes go from the log into the database as they are; of codecs only the ids are needed. */
function toCollections(
  specs: readonly string[],
  prefixes: readonly string[],
): { [name: string]: ReplicatedCollectionOptions } {
  const collections = new Map<string, ReplicatedCollectionOptions>();
  for (const spec of specs) {
    const [, name = '', suffixes = ''] = COLLECTION.exec(spec) ?? [];
    if (collections.has(name)) throw invalid(`--collection ${spec}: it is named twice`);
    const given = suffixes.split(':').slice(1);
    const idOf = (kind: string): string | undefined =>
      given.find((suffix) => suffix.startsWith(`${kind}=`))?.slice(kind.length + 1);
    const [key, value] = [idOf('key'), idOf('value')];
    collections.set(name, {
      mode: given.includes('strict') ? 'strict' : 'merge',
      key: asStored(key ?? 'any'),
      value: asStored(value ?? 'structured'),
    });
  }
  if (collections.size === 0)
    throw invalid(
      '--collection is missing: name each collection that is replicated, as what is not named is not restored',
    );
  for (const spec of prefixes) {
    const [, name = '', mode, json = ''] = PREFIX_MODE.exec(spec) ?? [];
    const collection = collections.get(name);
    if (collection === undefined)
      throw invalid(
        `--prefix-mode ${spec}: ${mode === undefined ? 'it has to be NAME:strict:PREFIX or NAME:merge:PREFIX' : `--collection does not name ${JSON.stringify(name)}`}`,
      );
    const prefix = toPrefix(spec, json, collection.key?.id ?? '');
    collections.set(name, {
      ...collection,
      prefixModes: [...(collection.prefixModes ?? []), { prefix, mode: mode as ReplicationMode }],
    });
  }
  return Object.fromEntries(collections);
}

/** A prefix as `prefixModes` takes it, of keys whose codec is `asStored`. */
function toPrefix(spec: string, json: string, codec: string): PrefixMode['prefix'] {
  let prefix: unknown;
  try {
    prefix = JSON.parse(json);
  } catch (error) {
    throw invalid(
      `--prefix-mode ${spec}: the prefix has to be a string or an array in JSON: ${(error as Error).message}`,
    );
  }
  if (typeof prefix === 'string' && codec === 'string') return new TextEncoder().encode(prefix);
  const isFitting = Array.isArray(prefix)
    ? codec === 'any' || codec === 'tuple'
    : typeof prefix === 'string' && codec === 'any';
  if (!isFitting)
    throw invalid(
      `--prefix-mode ${spec}: the keys of that collection, with the codec ${codec}, have no such prefix: a string goes with any and string, an array with any and tuple`,
    );
  return prefix as PrefixMode['prefix'];
}
