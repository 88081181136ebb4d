// Starts S3-compatible servers with an empty bucket.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { AwsClient } from 'aws4fetch';
import type { S3Options } from '../../src/sync/s3/index.ts';
import { programOf } from './nats.ts';
import { freePorts } from './proxy.ts';

export interface S3Server {
  readonly options: S3Options;
  /** The address of the server, which a proxy may stand for. */
  readonly port: number;
  stop(): Promise<void>;
}

const KEYS = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVERSECRET' };
const BUCKET = 'databases';
const S3RVER = fileURLToPath(new URL('../servers/node_modules/s3rver/bin/s3rver.js', import.meta.url));

async function start(command: (port: number, directory: string) => readonly string[], env: Record<string, string>, secret = KEYS.secretAccessKey): Promise<S3Server> {
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-s3-'));
  const [port = 0] = await freePorts(1);
  const [program, ...args] = command(port, directory) as [string, ...string[]];
  const child = spawn(program, args, { env: { ...process.env, NODE_OPTIONS: '', ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => {
    printed += bytes;
  });
  const credentials = { ...KEYS, secretAccessKey: secret };
  const endpoint = `http://127.0.0.1:${port}`;
  const client = new AwsClient({ ...credentials, service: 's3', region: 'us-east-1', retries: 0 });
  for (let tries = 0; ; tries++) {
    if (child.exitCode !== null || tries > 600) {
      child.kill('SIGKILL');
      throw new Error(`${program} did not start: ${printed.slice(-2000)}`);
    }
    const response = await client.fetch(`${endpoint}/${BUCKET}`, { method: 'PUT' }).catch(() => undefined);
    if (response?.ok === true || response?.status === 409) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    options: { endpoint, bucket: BUCKET, credentials },
    port,
    stop: async () => {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

export const startMinio = (): Promise<S3Server> => start(
  (port, directory) => [programOf('MINIO'), 'server', directory, '--address', `127.0.0.1:${port}`, '--quiet'],
  { MINIO_ROOT_USER: KEYS.accessKeyId, MINIO_ROOT_PASSWORD: KEYS.secretAccessKey, MINIO_BROWSER: 'off', MINIO_UPDATE: 'off' },
);

export const startVersitygw = (): Promise<S3Server> => start(
  (port, directory) => [programOf('VERSITYGW'), '--access', KEYS.accessKeyId, '--secret', KEYS.secretAccessKey, '--port', `127.0.0.1:${port}`, 'posix', directory],
  {},
);

export const startS3rver = (): Promise<S3Server> => start(
  (port, directory) => [process.execPath, S3RVER, '--directory', directory, '--address', '127.0.0.1', '--port', String(port), '--silent'],
  {}, 'S3RVER',
);
