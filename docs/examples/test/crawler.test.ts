// Kills the crawler twice. What it did is counted from the log of the server that it crawls.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { keyCodecs, open } from 'mangrove-kv';
import { DIRECTORY, RUNTIME, commandOf } from './runtime.ts';

const PAGES = 60;
const WORKERS = 4;
/** The page that the server refuses once. */
const REFUSED = 5;
/** The requests at which the crawler is killed. */
const KILLS = [15, 35];
/** A killed run's leases have to end before the test does; the last run's must not. */
const SHORT_LEASE_MS = 10_000;
const LONG_LEASE_MS = 600_000;

interface Request {
  readonly page: number;
  readonly run: number;
  readonly title: string;
  readonly isAnswered: boolean;
}

/** A tree, with links back, to the page itself and to elsewhere. */
function html(page: number, title: string): string {
  const links = [
    `/${2 * page + 1}`,
    `${2 * page + 2}`,
    `/${Math.max(page - 1, 0)}`,
    '/0',
    `/${page}#end`,
    'http://elsewhere.invalid/',
  ];
  const isInside = (link: string): boolean => !/^\/?\d+$/.test(link) || Number(link.replace('/', '')) < PAGES;
  return `<title>${title}</title>${links
    .filter(isInside)
    .map((link) => `<a href="${link}">${link}</a>`)
    .join(' ')}`;
}

test(`crawler in ${RUNTIME}: killed twice, it fetches every page and repeats only what was not stored`, {
  timeout: 300_000,
}, async () => {
  const log: Request[] = [];
  const stored: Set<number>[] = [];
  let crawler: ChildProcess | undefined;
  const server = createServer((request, response) => {
    const page = Number(request.url?.slice(1));
    const title = `page ${page}, request ${log.length}`;
    const isKilled = log.length >= (KILLS[stored.length] ?? Infinity);
    const isRefused = page === REFUSED && !log.some((other) => other.page === page);
    log.push({ page, run: stored.length, title, isAnswered: !isKilled && !isRefused });
    if (isKilled) crawler?.kill('SIGKILL');
    else response.writeHead(isRefused ? 503 : 200).end(html(page, title));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-crawler-'));
  const path = join(directory, 'db');
  try {
    for (let run = 0; run <= KILLS.length; run++) {
      const isLast = run === KILLS.length;
      const [program, args] = commandOf(
        'crawler.ts',
        path,
        `${origin}/0`,
        String(isLast ? LONG_LEASE_MS : SHORT_LEASE_MS),
      );
      crawler = spawn(program, args, { cwd: DIRECTORY, stdio: ['ignore', 'pipe', 'inherit'] });
      let output = '';
      crawler.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
        output += chunk;
      });
      const [status, signal] = (await once(crawler, 'close')) as [number | null, string | null];
      assert.deepEqual([status, signal], isLast ? [0, null] : [null, 'SIGKILL'], output);
      if (isLast) assert.equal(output, `${PAGES} of ${PAGES} pages\n${PAGES} link to the start\n`);

      const db = await open(path, { readOnly: true });
      const pages = db.collection<string, { readonly title: string }>('pages', { key: keyCodecs.string });
      stored.push(
        new Set(
          await pages
            .keys()
            .map((url) => Number(new URL(url).pathname.slice(1)))
            .toArray(),
        ),
      );
      for await (const [url, { title }] of pages) {
        const answers = log.filter(({ page, isAnswered }) => isAnswered && url === `${origin}/${page}`);
        assert.ok(
          answers.some((answer) => answer.title === title),
          `${url} has the title ${title}`,
        );
      }
      await db.close();
    }
  } finally {
    crawler?.kill('SIGKILL');
    server.close();
    server.closeAllConnections();
    await rm(directory, { recursive: true, force: true });
  }

  for (let page = 0; page < PAGES; page++) {
    const firstStored = stored.findIndex((pages) => pages.has(page));
    assert.ok(firstStored >= 0, `page ${page} is stored`);
    const requests = log.filter((request) => request.page === page);
    assert.ok(
      requests.every(({ run }) => run <= firstStored),
      `page ${page} is not fetched again once it is stored`,
    );
    for (let run = 0; run < stored.length; run++) {
      const answers = requests.filter((request) => request.isAnswered && request.run === run);
      assert.ok(answers.length <= 1, `run ${run} fetches page ${page} once, not ${answers.length} times`);
    }
  }
  const repeated = log.length - PAGES - 1;
  assert.ok(
    repeated >= KILLS.length && repeated <= KILLS.length * WORKERS,
    `each kill costs each worker a page at most, not ${repeated} in all`,
  );
});
