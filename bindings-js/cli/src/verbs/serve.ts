// The verb serve: a process that does nothing but lead a database which others share.
import process from 'node:process';
import { setTimeout } from 'node:timers/promises';
import { leaderOf } from 'mangrove-kv/internal/tool';
import { note, print } from '../output.ts';
import { write } from '../store.ts';
import type { StoreOptions } from '../store.ts';

const FOREVER_MS = 2 ** 30;
/** How long it may take to listen. Where that is impossible, others are told when they open it. */
const LISTEN_MS = 1000;
const POLL_MS = 5;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export async function serve(path: string, options: StoreOptions): Promise<void> {
  await write(path, { ...options, create: true }, async (db) => {
    // Connections keep no process alive.
    const alive = setInterval(() => undefined, FOREVER_MS);
    try {
      const ended = new Promise<NodeJS.Signals | 'close'>((resolve) => {
        // Not `once`, of which Deno hears no signals.
        for (const signal of SIGNALS) process.on(signal, resolve);
        db.addEventListener('close', () => resolve('close'));
      });
      db.addEventListener('leader', ({ leader }) => note(`process ${leader.pid} leads ${path} now`));
      // Others reach it from now on.
      const limit = Date.now() + LISTEN_MS;
      while (leaderOf(db.path) === undefined && Date.now() < limit) await setTimeout(POLL_MS);
      print(JSON.stringify({ path: db.path, pid: process.pid }));
      const reason = await ended;
      if (reason !== 'close') note(`${reason}: another process that has ${path} open takes over`);
    } finally {
      clearInterval(alive);
    }
  });
}
