// Starts S3-compatible servers with an empty bucket.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { AwsClient } from 'aws4fetch';
import type { S3Options } from '../../../replication-s3/src/index.ts';
import { programOf } from './nats.ts';
import { freePorts } from './proxy.ts';

const KEYS = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVERSECRET' };
const BUCKET = 'databases';
const S3RVER = fileURLToPath(new URL('../servers/node_modules/s3rver/bin/s3rver.js', import.meta.url));

export class S3Server {
  readonly options: S3Options;
  /** The address of the server, which a proxy may stand for. */
  readonly port: number;
  readonly #command: readonly string[];
  readonly #env: Record<string, string>;
  readonly #directory: string;
  #child: ChildProcess | undefined;

  private constructor(
    options: S3Options,
    port: number,
    command: readonly string[],
    env: Record<string, string>,
    directory: string,
  ) {
    this.options = options;
    this.port = port;
    this.#command = command;
    this.#env = env;
    this.#directory = directory;
  }

  static async start(
    command: (port: number, directory: string) => readonly string[],
    env: Record<string, string>,
    secret = KEYS.secretAccessKey,
  ): Promise<S3Server> {
    const directory = mkdtempSync(join(tmpdir(), 'mangrove-s3-'));
    const [port = 0] = await freePorts(1);
    const options = {
      endpoint: `http://127.0.0.1:${port}`,
      bucket: BUCKET,
      credentials: { ...KEYS, secretAccessKey: secret },
    };
    const server = new S3Server(options, port, command(port, join(directory, 'store')), env, directory);
    await server.start();
    return server;
  }

  /** Starts it, again after `kill`. */
  async start(): Promise<void> {
    const [program, ...args] = this.#command as [string, ...string[]];
    mkdirSync(join(this.#directory, 'store'), { recursive: true });
    const child = spawn(program, args, {
      env: { ...process.env, NODE_OPTIONS: '', ...this.#env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    let printed = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (bytes) => {
        printed += bytes;
      });
    const client = new AwsClient({
      ...(this.options.credentials as typeof KEYS),
      service: 's3',
      region: 'us-east-1',
      retries: 0,
    });
    for (let tries = 0; ; tries++) {
      if (child.exitCode !== null || tries > 600) {
        child.kill('SIGKILL');
        throw new Error(`${program} did not start: ${printed.slice(-2000)}`);
      }
      const response = await client
        .fetch(`${this.options.endpoint}/${BUCKET}`, { method: 'PUT' })
        .catch(() => undefined);
      if (response?.ok === true || response?.status === 409) break;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }

  /** Copies the disk of a server that does not run, to be put back later. */
  saveDisk(): void {
    rmSync(join(this.#directory, 'saved'), { recursive: true, force: true });
    cpSync(join(this.#directory, 'store'), join(this.#directory, 'saved'), { recursive: true });
  }

  restoreDisk(): void {
    if (!existsSync(join(this.#directory, 'saved'))) return;
    rmSync(join(this.#directory, 'store'), { recursive: true, force: true });
    cpSync(join(this.#directory, 'saved'), join(this.#directory, 'store'), { recursive: true });
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

export const startMinio = (): Promise<S3Server> =>
  S3Server.start(
    (port, directory) => [programOf('MINIO'), 'server', directory, '--address', `127.0.0.1:${port}`, '--quiet'],
    {
      MINIO_ROOT_USER: KEYS.accessKeyId,
      MINIO_ROOT_PASSWORD: KEYS.secretAccessKey,
      MINIO_BROWSER: 'off',
      MINIO_UPDATE: 'off',
    },
  );

export const startVersitygw = (): Promise<S3Server> =>
  S3Server.start(
    (port, directory) => [
      programOf('VERSITYGW'),
      '--access',
      KEYS.accessKeyId,
      '--secret',
      KEYS.secretAccessKey,
      '--port',
      `127.0.0.1:${port}`,
      'posix',
      directory,
    ],
    {},
  );

export const startS3rver = (): Promise<S3Server> =>
  S3Server.start(
    (port, directory) => [
      process.execPath,
      S3RVER,
      '--directory',
      directory,
      '--address',
      '127.0.0.1',
      '--port',
      String(port),
      '--silent',
    ],
    {},
    'S3RVER',
  );
