// Accounts and credentials: the streams are in one account, devices in another one.
import { Algorithms, encodeAccount, encodeOperator, encodeUser } from '@nats-io/jwt';
import { createAccount, createOperator, createUser, fromSeed } from '@nats-io/nkeys';
import type { KeyPair } from '@nats-io/nkeys';
import { KvError } from 'mangrove-kv';
import type { NatsCredentials } from './connection.ts';
import { LIVE, manifestsOf, namesOf, streamOf } from './names.ts';

/** Where devices find the JetStream API: the `apiPrefix` of `natsLog`. */
export const DEVICE_API = 'replication.API';

/** Seeds of the keys that everything is signed with. Keep them secret: they open all databases. */
export interface Authority {
  readonly operator: string;
  readonly system: string;
  /** Of the account that has the streams. */
  readonly streams: string;
  /** Of the account of the devices: the only one that minting credentials of devices needs. */
  readonly devices: string;
}

/** What a device may do with which database. */
export interface DeviceCredentialsOptions {
  /** {@link Authority.devices}. */
  readonly signer: string;
  readonly database: string;
  readonly device: string;
  /** As many as the streams were created with. Default: 1. */
  readonly shards?: number | undefined;
  /** For how long they are valid, in seconds, at least 1. */
  readonly expiresIn: number;
  /** Whether it may replace the manifest and purge. A purge can reach all databases of the shard: for servers only. Default: false. */
  readonly canCompact?: boolean | undefined;
  /** The public key of the device, which then keeps the seed to itself. Default: a new key, whose seed is returned. */
  readonly publicKey?: string | undefined;
}

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** New keys for an operator and its accounts. */
export function createAuthority(): Authority {
  return {
    operator: text(createOperator().getSeed()),
    system: text(createAccount().getSeed()),
    streams: text(createAccount().getSeed()),
    devices: text(createAccount().getSeed()),
  };
}

function keyOf(seed: string, what: string): KeyPair {
  try {
    return fromSeed(new TextEncoder().encode(seed));
  } catch (error) {
    throw new KvError('KV_INVALID_ARGUMENT', `${what} has to be the seed of a key, as createAuthority makes them`, {
      cause: error,
    });
  }
}

/** What devices may use of the account with the streams. `isMany`: one request, many replies. */
const SERVICES = [
  { name: 'records', subject: 'oplog.>' },
  { name: 'manifests', subject: 'manifest.>' },
  { name: 'open consumers', subject: '$JS.API.CONSUMER.CREATE.>' },
  { name: 'read', subject: '$JS.API.CONSUMER.MSG.NEXT.>', isMany: true },
  { name: 'close consumers', subject: '$JS.API.CONSUMER.DELETE.>' },
  { name: 'read manifests', subject: '$JS.API.DIRECT.GET.>' },
  { name: 'purge', subject: '$JS.API.STREAM.PURGE.>' },
] as const;

const localSubject = (subject: string): string => subject.replace(/^\$JS\.API/, DEVICE_API);

/**
 * The part of a server's configuration that makes the accounts known, to be included as
 * `docs/examples/nats/accounts.conf` does. It has public keys and signatures only.
 */
export async function accountsConfig(authority: Authority): Promise<string> {
  const operator = keyOf(authority.operator, 'operator');
  const [system, streams, devices] = [
    keyOf(authority.system, 'system'),
    keyOf(authority.streams, 'streams'),
    keyOf(authority.devices, 'devices'),
  ];
  const sign = { signer: operator, algorithm: Algorithms.v2 };
  // What a token does not name is 0.
  const limits = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 };
  const accounts = [
    [system, await encodeAccount('SYSTEM', system, { limits } as Parameters<typeof encodeAccount>[2], sign)],
    [
      streams,
      await encodeAccount(
        'STREAMS',
        streams,
        {
          limits: { ...limits, mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 },
          exports: [
            ...SERVICES.map((service) => ({
              name: service.name,
              subject: service.subject,
              type: 'service' as const,
              ...('isMany' in service ? { response_type: 'Stream' as const } : {}),
            })),
            { name: 'live', subject: `${LIVE}>`, type: 'stream' as const },
          ],
        } as Parameters<typeof encodeAccount>[2],
        sign,
      ),
    ],
    [
      devices,
      await encodeAccount(
        'DEVICES',
        devices,
        {
          limits,
          imports: [
            ...SERVICES.map(({ name, subject }) => ({
              name,
              subject,
              local_subject: localSubject(subject),
              account: streams.getPublicKey(),
              type: 'service' as const,
            })),
            { name: 'live', subject: `${LIVE}>`, account: streams.getPublicKey(), type: 'stream' as const },
          ],
        } as Parameters<typeof encodeAccount>[2],
        sign,
      ),
    ],
  ] as const;
  return [
    `operator: ${await encodeOperator('mangrove', operator, {}, sign)}`,
    `system_account: ${system.getPublicKey()}`,
    'resolver: MEMORY',
    'resolver_preload: {',
    ...accounts.map(([key, jwt]) => `  ${key.getPublicKey()}: ${jwt}`),
    '}',
    '',
  ].join('\n');
}

/** Credentials of a server that creates the streams: they open all databases. */
export async function adminCredentials({
  signer,
  expiresIn,
}: {
  readonly signer: string;
  readonly expiresIn: number;
}): Promise<NatsCredentials> {
  return credentialsFor('administration', undefined, keyOf(signer, 'signer'), {}, expiresIn);
}

/**
 * Credentials with which a device may write its own records to one database and read that
 * database, until they expire. Throws `KV_INVALID_ARGUMENT` for unusable options.
 */
export async function deviceCredentials(options: DeviceCredentialsOptions): Promise<NatsCredentials> {
  const { signer, expiresIn, canCompact = false, publicKey } = options;
  const names = namesOf(options);
  const [stream, manifests] = [streamOf(names.shard), manifestsOf(names.shard)];
  return credentialsFor(
    `${names.database} ${names.device}`,
    publicKey,
    keyOf(signer, 'signer'),
    {
      pub: {
        allow: [
          names.own,
          names.confirm,
          `${DEVICE_API}.CONSUMER.CREATE.${stream}.*.${names.all}`,
          `${DEVICE_API}.CONSUMER.MSG.NEXT.${stream}.*`,
          `${DEVICE_API}.CONSUMER.DELETE.${stream}.*`,
          `${DEVICE_API}.DIRECT.GET.${manifests}.${names.manifest}`,
          ...(canCompact ? [names.floor, names.manifest, `${DEVICE_API}.STREAM.PURGE.${stream}`] : []),
        ],
      },
      sub: { allow: [`${names.inbox}.>`, `${LIVE}${names.records}`] },
    },
    expiresIn,
  );
}

async function credentialsFor(
  name: string,
  publicKey: string | undefined,
  signer: KeyPair,
  permissions: object,
  expiresIn: number,
): Promise<NatsCredentials> {
  if (!Number.isFinite(expiresIn) || expiresIn < 1)
    throw new KvError('KV_INVALID_ARGUMENT', `expiresIn has to be a number of seconds, at least 1, not ${expiresIn}`);
  const user = createUser();
  const jwt = await encodeUser(
    name,
    publicKey ?? user,
    signer,
    permissions as Parameters<typeof encodeUser>[3],
    { exp: Math.floor(Date.now() / 1000 + expiresIn) } as Parameters<typeof encodeUser>[4],
  );
  return { jwt, seed: publicKey === undefined ? text(user.getSeed()) : '' };
}
