// Two tenants on the servers of one provider, two devices each:
// `main.ts <nats-server> <directory> <port>`.
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { natsLog } from '@mangrove-kv/replication-nats';
import { DEVICE_API } from '@mangrove-kv/replication-nats/admin';
import { admission, logOf, startDevice, stopDevice } from './device.ts';
import { Issuer } from './issuer.ts';

const [program = 'nats-server', directory = 'build/tenants', port = '8423'] = process.argv.slice(2);
const issuer = new Issuer();

// The provider of the log gets public keys, and nothing that opens a record.
mkdirSync(directory, { recursive: true });
cpSync(fileURLToPath(new URL('../nats', import.meta.url)), directory, { recursive: true });
writeFileSync(join(directory, 'authority.conf'), await issuer.config());
writeFileSync(join(directory, 'main.conf'), 'include ./server.conf\ninclude ./accounts.conf\n');
const server = spawn(program, ['-c', join(directory, 'main.conf'), '-l', join(directory, 'log')], {
  stdio: 'inherit',
  env: {
    ...process.env,
    NATS_NAME: 'tenants',
    NATS_LISTEN: '127.0.0.1:-1',
    NATS_WEBSOCKET_LISTEN: `127.0.0.1:${port}`,
    NATS_STORE: join(directory, 'store'),
  },
});
process.on('exit', () => server.kill());
const isUp = (): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(Number(port), '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    }).on('error', () => resolve(false));
  });
while (!(await isUp())) {
  if (server.exitCode !== null) throw new Error('nats-server has ended; its log is in the directory');
  await pause(50);
}
const address = await issuer.start(`ws://127.0.0.1:${port}`);

const tokens = { ada: issuer.invite('ada'), grace: issuer.invite('grace') };
for (const [tenant, token] of Object.entries(tokens)) {
  const devices = [
    await startDevice(join(directory, `${tenant} phone`), address, token, 'phone'),
    await startDevice(join(directory, `${tenant} laptop`), address, token, 'laptop'),
  ] as const;
  const [phone, laptop] = devices;
  await phone.notes.set('diary', `the secret of ${tenant}`);
  while ((await laptop.notes.get('diary')) === undefined) await pause(10);
  console.log(`${tenant}'s laptop reads: ${await laptop.notes.get('diary')}`);
  await Promise.all(devices.map(stopDevice));
}

// What the provider has of it.
const own = await admission(address, tokens.ada, 'auditor');
const log = logOf(address, tokens.ada, 'auditor', own);
const records = await log.read(0, 100);
const isReadable = records.some(({ record }) => Buffer.from(record).includes('secret'));
console.log(`ada's log has ${records.length} record, ${isReadable ? 'which the servers can read' : 'sealed'}`);
await log.close();

// One tenant's credentials open no other database.
const { credentials } = await admission(address, tokens.grace, 'phone');
const foreign = natsLog({
  servers: own.servers,
  database: own.database,
  device: 'phone',
  apiPrefix: DEVICE_API,
  credentials,
  timeout: 2000,
});
const read = await foreign.read(0, 100).then(
  (found) => `${found.length} records`,
  (error: { readonly code: string }) => error.code,
);
console.log(`grace reads ada's log: ${read}`);
await foreign.close();

// Nor does a token that the issuer does not know.
console.log(
  `a stranger: ${await admission(address, 'guessed', 'phone').then(
    () => 'let in',
    (error: Error) => error.message,
  )}`,
);
issuer.stop();
process.exit(0);
