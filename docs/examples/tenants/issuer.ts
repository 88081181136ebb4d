// The application's own server: it knows who asks, and gives each device what it needs for the
// database of its tenant, and for no other. A service like this needs a database of its own for what
// is in maps here, and a password or passkey instead of the tokens.
import { createServer } from 'node:http';
import type { IncomingMessage, Server } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import {
  accountsConfig,
  adminCredentials,
  createAuthority,
  createStreams,
  deviceCredentials,
} from '@mangrove-kv/replication-nats/admin';
import type { Authority, NatsCredentials } from '@mangrove-kv/replication-nats/admin';

/** What a device is told. */
export interface Admission {
  readonly servers: string;
  readonly database: string;
  /** For an hour: an expired device asks again, and one that was shut out is refused then. */
  readonly credentials: NatsCredentials;
  /** Key of the tenant's database, in base64. The servers of the log never see it. */
  readonly key: string;
}

interface Tenant {
  readonly database: string;
  readonly key: Uint8Array;
}

export class Issuer {
  readonly #authority: Authority = createAuthority();
  readonly #tenants = new Map<string, Tenant>();
  readonly #tokens = new Map<string, Tenant>();
  #http: Server | undefined;
  #servers = '';

  /** What the servers of the log have to know. No secrets. */
  config(): Promise<string> {
    return accountsConfig(this.#authority);
  }

  /** Begins to answer, once the servers of the log run; resolves to its address. */
  async start(servers: string): Promise<string> {
    this.#servers = servers;
    const credentials = await adminCredentials({ signer: this.#authority.streams, expiresIn: 60 });
    await createStreams({ servers, replicas: 1, credentials });
    this.#http = createServer((request, response) => {
      this.#admit(request)
        .then((admission) => {
          response.writeHead(admission === undefined ? 403 : 200, { 'content-type': 'application/json' });
          response.end(JSON.stringify(admission ?? { error: 'unknown token' }));
        })
        .catch((error: unknown) => response.writeHead(500).end(String(error)));
    }).listen(0, '127.0.0.1');
    await once(this.#http, 'listening');
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  /** Lets somebody in; returns the token for the devices. */
  invite(tenant: string): string {
    const known = this.#tenants.get(tenant) ?? {
      database: `notes of ${tenant}`,
      key: crypto.getRandomValues(new Uint8Array(32)),
    };
    this.#tenants.set(tenant, known);
    const token = crypto.randomUUID();
    this.#tokens.set(token, known);
    return token;
  }

  async #admit({ headers, url = '/' }: IncomingMessage): Promise<Admission | undefined> {
    const tenant = this.#tokens.get((headers.authorization ?? '').replace('Bearer ', ''));
    const device = new URL(url, 'http://localhost').searchParams.get('device');
    if (tenant === undefined || device === null) return undefined;
    const { database, key } = tenant;
    const credentials = await deviceCredentials({ signer: this.#authority.devices, database, device, expiresIn: 3600 });
    return { servers: this.#servers, database, credentials, key: Buffer.from(key).toString('base64') };
  }

  stop(): void {
    this.#http?.close();
  }
}
