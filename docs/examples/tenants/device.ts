// A device of a tenant. It has a token, and asks the issuer for everything else.
import { open } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';
import { replicate } from '@mangrove-kv/replication';
import type { RemoteLog, Seal, Replication } from '@mangrove-kv/replication';
import { natsLog } from '@mangrove-kv/replication-nats';
import { DEVICE_API } from '@mangrove-kv/replication-nats/admin';
import type { Admission } from './issuer.ts';

export interface Device {
  readonly db: Database;
  readonly notes: Collection<string, string>;
  readonly replication: Replication;
}

export async function admission(issuer: string, token: string, device: string): Promise<Admission> {
  const response = await fetch(`${issuer}/?device=${device}`, { headers: { authorization: `Bearer ${token}` } });
  if (!response.ok) throw new Error(`the issuer refuses device ${device}: ${response.status}`);
  return (await response.json()) as Admission;
}

/** Not extractable: a script that gets hold of it can use it, but not take it away. */
export async function sealOf({ database, key }: Admission): Promise<Seal> {
  return {
    database,
    key: await crypto.subtle.importKey('raw', Buffer.from(key, 'base64'), 'AES-GCM', false, ['encrypt', 'decrypt']),
  };
}

/** The log of the database, with new credentials for each connection. */
export function logOf(issuer: string, token: string, device: string, { servers, database }: Admission): RemoteLog {
  return natsLog({
    servers,
    database,
    device,
    apiPrefix: DEVICE_API,
    credentials: async () => (await admission(issuer, token, device)).credentials,
  });
}

export async function startDevice(path: string, issuer: string, token: string, device: string): Promise<Device> {
  const admitted = await admission(issuer, token, device);
  const db = await open(path, { feed: true });
  const replication = await replicate(db, {
    log: logOf(issuer, token, device, admitted),
    collections: { notes: {} },
    seal: await sealOf(admitted),
  });
  return { db, notes: db.collection('notes'), replication };
}

export async function stopDevice({ db, replication }: Device): Promise<void> {
  await replication.close();
  await db.close();
}
