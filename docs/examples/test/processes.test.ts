// Runs the examples in which several processes, threads or copies of a module share a database, and kills some of them.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { keyCodecs, open } from 'mangrove-kv';
import { DIRECTORY, commandOf } from './runtime.ts';

/** For a line, or for an answer, before the test fails; nothing takes nearly as long. */
const PATIENCE_MS = 60_000;

const VITEST = fileURLToPath(new URL('vitest.mjs', import.meta.resolve('vitest/package.json')));

/** A running example, and what it prints. */
class Program {
  readonly lines: string[] = [];
  readonly process: ChildProcess;
  readonly #printed = new EventEmitter();
  #rest = '';

  constructor(example: string, ...args: string[]) {
    const [program, flags] = commandOf(example, ...args);
    this.process = spawn(program, flags, { cwd: DIRECTORY, stdio: ['pipe', 'pipe', 'inherit'] });
    this.process.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      const lines = (this.#rest + chunk).split('\n');
      this.#rest = lines.pop() ?? '';
      this.lines.push(...lines);
      this.#printed.emit('lines');
    });
    this.process.once('close', () => this.#printed.emit('lines'));
  }

  /** Waits until what was printed satisfies a condition; returns the condition's result. */
  async until<T>(wanted: string, find: (lines: readonly string[]) => T | undefined | false): Promise<T> {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    for (;;) {
      const found = find(this.lines);
      if (found !== undefined && found !== false) return found;
      const { exitCode, signalCode } = this.process;
      assert.ok(exitCode === null && signalCode === null, `${wanted}: the program has ended\n${this.lines.join('\n')}`);
      await once(this.#printed, 'lines', { signal }).catch(() =>
        assert.fail(`${wanted}: not printed\n${this.lines.join('\n')}`),
      );
    }
  }

  /** All groups of a pattern in the lines so far. */
  all(pattern: RegExp): string[] {
    return this.lines.flatMap((line) => pattern.exec(line)?.[1] ?? []);
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.kill(signal);
    await once(this.process, 'close');
  }
}

async function withExample(
  start: (directory: string) => Program,
  use: (program: Program, directory: string) => Promise<void>,
): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-example-'));
  const program = start(directory);
  try {
    await use(program, directory);
  } finally {
    await program.end('SIGKILL');
    await rm(directory, { recursive: true, force: true });
  }
}

/** Each request has a connection of its own, so that all workers get some. */
function ask(method: string, url: string, headers = {}, timeout = PATIENCE_MS): Promise<string> {
  return new Promise((resolve, reject) => {
    request(url, { method, headers, agent: false, signal: AbortSignal.timeout(timeout) }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk;
      });
      response.on('error', reject).on('end', () => {
        if (response.statusCode === 200) resolve(body);
        else reject(new Error(`${response.statusCode}: ${body}`));
      });
    })
      .on('error', reject)
      .end();
  });
}

/** Tells which of the processes that have a database open runs its engine, once the others are connected to it. */
async function whoLeads(path: string, pids: readonly number[]): Promise<{ pid: number; isLeader: boolean }[]> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const db = await open(path);
    const { clients = [] } = await db.stats();
    await db.close();
    const processes = pids.map((pid) => ({ pid, isLeader: clients.every((client) => client.pid !== pid) }));
    if (processes.filter(({ isLeader }) => isLeader).length === 1) return processes;
    assert.ok(Date.now() < deadline, `of ${pids}, these are connected: ${clients.map(({ pid }) => pid)}`);
  }
}

const CLUSTER_WORKERS = 4;
const PAGES = ['/home', '/news', '/about', '/help'];
const VISITS = 400;
const CLIENTS = 12;
/** A request may be at a worker that was killed before it read it. */
const RETRY_MS = 2_000;
/** After how many answers a worker is killed, and which: the one that runs the engine, or another. */
const KILLS: readonly (readonly [answers: number, leads: boolean])[] = [
  [80, true],
  [200, false],
];

test('cluster: four workers count each visit once, also those that were killed meanwhile, and are replaced', () =>
  withExample(
    (directory) => new Program('cluster/main.ts', join(directory, 'db'), '0'),
    async (cluster, directory) => {
      const path = join(directory, 'db');
      const listening = (): number[] => cluster.all(/^worker (\d+) listens/).map(Number);
      const dead = (): number[] => cluster.all(/^worker (\d+) died \(SIGKILL\)/).map(Number);
      const alive = (): number[] => listening().filter((pid) => !dead().includes(pid));
      await cluster.until('four workers', () => listening().length === CLUSTER_WORKERS);
      const [port] = cluster.all(/ listens on (\d+)$/);
      const origin = `http://127.0.0.1:${port}`;

      const kill = async (leads: boolean): Promise<void> => {
        const [victim] = (await whoLeads(path, alive())).filter(({ isLeader }) => isLeader === leads);
        assert.ok(victim);
        process.kill(victim.pid, 'SIGKILL');
        await cluster.until('another worker', () => dead().includes(victim.pid) && alive().length === CLUSTER_WORKERS);
      };

      const numbers = new Map<string, number>();
      const kills = [...KILLS];
      let killing = Promise.resolve();
      let next = 0;
      let repeated = 0;
      const visit = async (): Promise<void> => {
        while (next < VISITS) {
          const id = String(next++);
          const page = PAGES[Number(id) % PAGES.length] as string;
          for (;;) {
            try {
              numbers.set(id, Number(await ask('POST', origin + page, { 'idempotency-key': id }, RETRY_MS)));
              break;
            } catch (error) {
              // Its worker was killed. Others answer without errors meanwhile.
              assert.doesNotMatch((error as Error).message, /^\d+: /);
              repeated += 1;
            }
          }
          if (numbers.size >= (kills[0]?.[0] ?? Infinity)) {
            const [, leads] = kills.shift() as (typeof KILLS)[number];
            killing = killing.then(() => kill(leads));
            // The test awaits it when all visits are counted.
            killing.catch(() => undefined);
          }
        }
      };
      await Promise.all(Array.from({ length: CLIENTS }, visit));
      await killing;
      assert.equal(dead().length, KILLS.length);
      assert.equal(listening().length, CLUSTER_WORKERS + KILLS.length, 'nothing but the port is listened on');
      const listed = JSON.parse(await ask('GET', origin + PAGES[0])) as readonly { readonly number: number }[];
      assert.deepEqual(
        listed.map(({ number }) => VISITS / PAGES.length - number),
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
      );
      await cluster.end('SIGTERM');
      assert.deepEqual([cluster.process.exitCode, cluster.process.signalCode], [0, null]);

      const db = await open(path, { lockTimeout: 0, share: false });
      const counts = db.collection<string, number>('counts', { key: keyCodecs.string });
      const visits = db.collection<readonly [string, number], { readonly id: string; readonly pid: number }>('visits', {
        key: keyCodecs.tuple(),
      });
      for (const page of PAGES) assert.equal(await counts.get(page), VISITS / PAGES.length, page);
      const stored = await visits.entries().toArray();
      assert.deepEqual(
        new Map(stored.map(([[, number], { id }]) => [id, number])),
        new Map([...numbers].sort(([a], [b]) => a.localeCompare(b))),
      );
      assert.equal(stored.length, VISITS);
      const counted = new Set(stored.map(([, { pid }]) => pid));
      assert.ok(
        counted.size > CLUSTER_WORKERS,
        `workers that replaced others have counted visits, ${repeated} repeated`,
      );
      await db.close();
    },
  ));

test('vite-ssr: after an edit the database is open twice in the process, and both handles work', async () => {
  // Vite finds the packages from here, and the test edits a copy of the module.
  const root = join(DIRECTORY, 'build', `vite-ssr-${process.pid}`);
  await mkdir(root, { recursive: true });
  const original = await readFile(join(DIRECTORY, 'vite-ssr', 'page.ts'), 'utf8');
  await writeFile(join(root, 'page.ts'), original);
  try {
    await withExample(
      (directory) => {
        process.env['DATABASE'] = join(directory, 'db');
        return new Program('vite-ssr/server.ts', root, '0');
      },
      async (server, directory) => {
        const url = await server.until('its address', (lines) => lines.find((line) => line.startsWith('http')));
        let visits = 0;
        const load = async (): Promise<string | undefined> => {
          const [, heading, number] = /<h1>(.*): <output>(\d+)</.exec(await ask('GET', url)) ?? [];
          visits += 1;
          assert.equal(Number(number), visits);
          return heading;
        };
        assert.equal(await load(), 'Visits');
        const before = await follow(`${url}visits`);
        await writeFile(join(root, 'page.ts'), original.replace("'Visits'", "'Edited'"));
        const deadline = Date.now() + PATIENCE_MS;
        while ((await load()) !== 'Edited') assert.ok(Date.now() < deadline, 'Vite sees the edit');
        const after = await follow(`${url}visits`);

        const db = await open(join(directory, 'db'));
        const { clients = [] } = await db.stats();
        assert.deepEqual(
          clients.map(({ pid }) => pid).sort(),
          [process.pid, server.process.pid].sort(),
          'the first handle runs the engine for the second one',
        );
        await load();
        await Promise.all([before.until(visits), after.until(visits)]);
        assert.equal(await db.collection('counts', { key: keyCodecs.string }).get('home'), visits);
        await db.close();
        before.end();
        after.end();
      },
    );
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});

interface Follower {
  readonly end: () => void;
  /** Waits for a number from the stream. */
  readonly until: (wanted: number) => Promise<void>;
}

/** Opens a stream of events, each with a number; returns when the first one is there. */
async function follow(url: string): Promise<Follower> {
  const asked = request(url, { agent: false }).end();
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  const signal = AbortSignal.timeout(PATIENCE_MS);
  let text = '';
  response.setEncoding('utf8');
  const until = async (isThere: () => boolean, wanted: string): Promise<void> => {
    while (!isThere())
      text += await once(response, 'data', { signal }).then(
        ([chunk]) => chunk as string,
        () => assert.fail(`the stream has no ${wanted}: ${text}`),
      );
  };
  await until(() => text.includes('data: '), 'number');
  return {
    end: () => void asked.destroy(),
    until: (wanted) => until(() => text.includes(`data: ${wanted}\n`), String(wanted)),
  };
}

for (const pool of ['forks', 'threads']) {
  test(`vitest-workers: four files of tests have one database, with the pool ${pool}`, async () => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [VITEST, 'run', '--root', 'vitest-workers', '--pool', pool],
      { cwd: DIRECTORY, env: { ...process.env, NO_COLOR: '1' }, timeout: PATIENCE_MS },
    );
    assert.match(stdout, /Test Files +4 passed \(4\)\n +Tests +8 passed \(8\)/);
    assert.match(stdout, /^4 places have sold 100 seats; 0 are free$/m);
  });
}

/** Files that are added in turn; while the second lot is counted, and again with the third, the utility process dies. */
const LOTS = [5, 20, 20];

test('desktop: the list of the main process follows the utility process, which is killed twice', () =>
  withExample(
    (directory) => new Program('desktop/main.ts', join(directory, 'db')),
    async (main, directory) => {
      const utilities = (): number[] => main.all(/^utility process (\d+)$/).map(Number);
      const counted = (): number => Number(main.all(/^(\d+) of /).at(-1) ?? 0);
      const words = new Map<string, number>();
      for (const [lot, size] of LOTS.entries()) {
        const before = words.size;
        for (let nth = 0; nth < size; nth++) {
          const name = join(directory, `${String(before + nth).padStart(3, '0')}.txt`);
          words.set(name, before + nth);
          await writeFile(name, 'word '.repeat(before + nth));
          main.process.stdin?.write(`${name}\n`);
        }
        if (lot > 0) {
          await main.until('progress', () => counted() > before);
          process.kill(utilities().at(-1) ?? assert.fail('there is none'), 'SIGKILL');
          await main.until('another utility process', () => utilities().length === lot + 1);
        }
        await main.until('all of them', () => counted() === words.size);
      }
      const list = [...words].map(([name, count]) => `${name} ${count}`).join(', ');
      assert.equal(main.lines.at(-1), `${words.size} of ${words.size}: ${list}`);

      main.process.stdin?.end();
      const [status] = (await once(main.process, 'close')) as [number | null];
      assert.equal(status, 0);
      const db = await open(join(directory, 'db'), { share: false });
      const files = db.collection<string, { readonly words?: number; readonly pid?: number }>('files', {
        key: keyCodecs.string,
      });
      const stored = await files.entries().toArray();
      assert.deepEqual(
        stored.map(([name, file]) => [name, file.words]),
        [...words],
      );
      const workers = stored.map(([, { pid }]) => utilities().indexOf(pid ?? 0));
      assert.deepEqual(
        workers,
        [...workers].sort((a, b) => a - b),
        'what one has counted, the next one does not count again',
      );
      assert.deepEqual(workers.slice(0, LOTS[0]), [0, 0, 0, 0, 0]);
      await db.close();
    },
  ));
