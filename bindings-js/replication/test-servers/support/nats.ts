// Starts servers of NATS with the files of docs/examples/nats, each link between two of them through
// a proxy.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { Link, freePorts } from './proxy.ts';

export const EXAMPLES = fileURLToPath(new URL('../../../../docs/examples/nats/', import.meta.url));

export function programOf(variable: string): string {
  const file = process.env[variable];
  if (file === undefined || !existsSync(file))
    throw new Error(
      `${variable} does not name a program: node .ci/setup.mjs --replication builds it, node .ci/test.mjs replication passes it on`,
    );
  return file;
}

export interface ClusterOptions {
  readonly nodes?: 1 | 3;
  /** Starts 2.9.10, which can lose acknowledged records. */
  readonly isOld?: boolean;
  /** What `accountsConfig` returns: then devices need credentials. */
  readonly accounts?: string;
}

export class Node {
  readonly name: string;
  readonly directory: string;
  readonly port: number;
  readonly websocket: number;
  readonly #program: string;
  readonly #config: string;
  readonly #env: Record<string, string>;
  #child: ChildProcess | undefined;

  constructor(
    name: string,
    directory: string,
    [port, websocket]: readonly [number, number],
    program: string,
    config: string,
    env: Record<string, string>,
  ) {
    this.name = name;
    this.directory = directory;
    this.port = port;
    this.websocket = websocket;
    this.#program = program;
    this.#config = config;
    this.#env = {
      NATS_NAME: name,
      NATS_LISTEN: `127.0.0.1:${port}`,
      NATS_WEBSOCKET_LISTEN: `127.0.0.1:${websocket}`,
      NATS_STORE: join(directory, 'store'),
      ...env,
    };
  }

  get isRunning(): boolean {
    return this.#child !== undefined;
  }

  async start(): Promise<void> {
    const child = spawn(this.#program, ['-c', this.#config, '-l', join(this.directory, 'log')], {
      env: { ...process.env, ...this.#env },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child = child;
    let printed = '';
    child.stderr.on('data', (bytes) => {
      printed += bytes;
    });
    child.on('exit', () => {
      if (this.#child === child) this.#child = undefined;
    });
    for (let tries = 0; !(await accepts(this.websocket)); tries++) {
      if (this.#child !== child || tries > 600)
        throw new Error(
          `nats-server did not start: ${printed}\n${existsSync(join(this.directory, 'log')) ? readFileSync(join(this.directory, 'log'), 'utf8').slice(-3000) : ''}`,
        );
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }

  /** Copies the disk of a server that does not run, to be put back later. */
  saveDisk(): void {
    rmSync(join(this.directory, 'saved'), { recursive: true, force: true });
    cpSync(join(this.directory, 'store'), join(this.directory, 'saved'), { recursive: true });
  }

  restoreDisk(): void {
    if (!existsSync(join(this.directory, 'saved'))) return;
    rmSync(join(this.directory, 'store'), { recursive: true, force: true });
    cpSync(join(this.directory, 'saved'), join(this.directory, 'store'), { recursive: true });
  }
}

/** The old version does not know it. */
function withoutSyncInterval(file: string): void {
  writeFileSync(file, readFileSync(file, 'utf8').replace(/^ *sync_interval.*$/m, ''));
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTcp(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

export class Cluster {
  readonly nodes: readonly Node[];
  /** `links[a][b]` is the route that a opens to b. */
  readonly links: readonly (readonly (Link | undefined)[])[];
  readonly #directory: string;

  private constructor(nodes: readonly Node[], links: readonly (readonly (Link | undefined)[])[], directory: string) {
    this.nodes = nodes;
    this.links = links;
    this.#directory = directory;
  }

  static async start({ nodes: count = 1, isOld = false, accounts }: ClusterOptions = {}): Promise<Cluster> {
    const program = programOf(isOld ? 'NATS_SERVER_OLD' : 'NATS_SERVER');
    const directory = mkdtempSync(join(tmpdir(), 'mangrove-nats-'));
    const ports = await freePorts(count * 3);
    const routes = ports.slice(0, count);
    const links = await Promise.all(
      routes.map((_, a) => Promise.all(routes.map(async (port, b) => (a === b ? undefined : Link.to(port))))),
    );
    const config = count === 1 ? 'server.conf' : 'cluster.conf';
    const nodes = routes.map((route, at) => {
      const own = join(directory, `n${at}`);
      cpSync(EXAMPLES, own, { recursive: true });
      if (isOld) withoutSyncInterval(join(own, 'server.conf'));
      if (accounts !== undefined) writeFileSync(join(own, 'authority.conf'), accounts);
      writeFileSync(
        join(own, 'main.conf'),
        `include ./${config}\n${accounts === undefined ? '' : 'include ./accounts.conf\n'}`,
      );
      const [one, two] = (links[at] as (Link | undefined)[])
        .filter((link) => link !== undefined)
        .map((link) => `nats-route://127.0.0.1:${link.port}`);
      const env =
        count === 1
          ? {}
          : {
              NATS_ROUTE_LISTEN: `127.0.0.1:${route}`,
              // Nowhere, so that each route goes through its proxy.
              NATS_ROUTE_ADVERTISE: '127.0.0.1:9',
              NATS_ROUTE_1: one as string,
              NATS_ROUTE_2: two as string,
            };
      return new Node(
        `n${at}`,
        own,
        [ports[count + at] as number, ports[2 * count + at] as number],
        program,
        join(own, 'main.conf'),
        env,
      );
    });
    const cluster = new Cluster(nodes, links, directory);
    await Promise.all(nodes.map((node) => node.start()));
    return cluster;
  }

  /** Addresses for devices. */
  get servers(): string[] {
    return this.nodes.map((node) => `ws://127.0.0.1:${node.websocket}`);
  }

  isolate(node: number, state: 'open' | 'cut' | 'silent'): void {
    for (const [a, row] of this.links.entries())
      for (const [b, link] of row.entries()) if (a === node || b === node) link?.set(state);
  }

  async stop(): Promise<void> {
    for (const node of this.nodes) node.signal('SIGCONT');
    await Promise.all(this.nodes.map((node) => node.kill()));
    await Promise.all(this.links.flat().map((link) => link?.close()));
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
