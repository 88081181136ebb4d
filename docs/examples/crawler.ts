// A crawler with its queue in the database: `crawler.ts <path> <address> [lease in ms]`. It may be
// killed at any time. Started again, it loses no page and stores none twice.
import { keyCodecs, open } from 'mangrove-kv';
import type { Transaction } from 'mangrove-kv';

interface Job {
  readonly depth: number;
  readonly failures: number;
}
interface Page {
  readonly title: string;
  readonly links: readonly string[];
}
type Lease = readonly [until: number, url: string];

const [path = 'example-crawler', start = 'http://127.0.0.1:8080/', lease = '30000'] = process.argv.slice(2);
const LEASE_MS = Number(lease);
const WORKERS = 4;
const MAX_FAILURES = 5;
const RETRY_MS = 100;
const POLL_MS = 50;

const db = await open(path);
/** Jobs for the next free worker, those nearest to the start first. */
const ready = db.collection<readonly [depth: number, url: string], Job>('ready', { key: keyCodecs.tuple() });
/** Jobs for later, by time: a worker has them until its lease ends, or they failed. */
const later = db.collection<Lease, Job>('later', { key: keyCodecs.tuple() });
/** All addresses that have ever been in the queue, with their depth. */
const seen = db.collection<string, number>('seen', { key: keyCodecs.string });
const pages = db.collection<string, Page>('pages', {
  key: keyCodecs.string,
  indexes: { byLink: { key: ({ links }) => links, multi: true } },
});

async function add(tx: Transaction, url: string, depth: number): Promise<void> {
  if (await tx.collection(seen).has(url)) return;
  await tx.collection(seen).set(url, depth);
  await tx.collection(ready).set([depth, url], { depth, failures: 0 });
}

/** Takes a job, which nobody else gets until the lease ends. */
function take(): Promise<{ readonly lease: Lease; readonly job: Job } | 'nothing now' | 'nothing left'> {
  return db.transaction(async (tx) => {
    const now = Date.now();
    // Their time has come; the worker that had them may be dead.
    for (const [key, job] of await tx
      .collection(later)
      .entries({ lt: [now, ''] })
      .toArray()) {
      await tx.collection(later).delete(key);
      await tx.collection(ready).set([job.depth, key[1]], job);
    }
    const first = await tx.collection(ready).first();
    if (first === undefined) return (await tx.collection(later).size) > 0 ? 'nothing now' : 'nothing left';
    const [key, job] = first;
    const lease: Lease = [now + LEASE_MS, key[1]];
    await tx.collection(ready).delete(key);
    await tx.collection(later).set(lease, job);
    return { lease, job };
  });
}

/** Not part of a transaction: after a conflict that runs again, and would fetch the page again. */
async function load(url: string): Promise<Page | undefined> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(LEASE_MS) });
    if (!response.ok) return undefined;
    const html = await response.text();
    const links = [...html.matchAll(/<a href="([^"#]+)/g)].map(([, href]) => new URL(href as string, url));
    return {
      title: /<title>(.*?)<\/title>/.exec(html)?.[1] ?? '',
      links: [...new Set(links.filter(({ origin }) => origin === new URL(url).origin).map(({ href }) => href))],
    };
  } catch {
    return undefined;
  }
}

/** Ends a job: the page, its new links and the end of the lease are one commit. */
function finish(lease: Lease, { depth, failures }: Job, page: Page | undefined): Promise<void> {
  const [, url] = lease;
  return db.transaction(async (tx) => {
    // The lease has ended, so the job is another worker's.
    if (!(await tx.collection(later).delete(lease))) return;
    if (page !== undefined) {
      await tx.collection(pages).set(url, page);
      for (const link of page.links) await add(tx, link, depth + 1);
    } else if (failures < MAX_FAILURES) {
      await tx.collection(later).set([Date.now() + RETRY_MS * 2 ** failures, url], { depth, failures: failures + 1 });
    }
  });
}

async function work(): Promise<void> {
  for (;;) {
    const taken = await take();
    if (taken === 'nothing left') return;
    if (taken === 'nothing now')
      await new Promise((resolve) => {
        setTimeout(resolve, POLL_MS);
      });
    else await finish(taken.lease, taken.job, await load(taken.lease[1]));
  }
}

await db.transaction((tx) => add(tx, start, 0));
await Promise.all(Array.from({ length: WORKERS }, work));

console.log(`${await pages.size} of ${await seen.size} pages`);
console.log(`${await pages.index('byLink').count({ eq: start })} link to the start`);
await db.close();
