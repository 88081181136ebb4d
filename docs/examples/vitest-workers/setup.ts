// Makes the database before the tests, keeps it open meanwhile, and counts at the end.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { openTickets } from './tickets.ts';

const SEATS = 100;

declare module 'vitest' {
  interface ProvidedContext {
    readonly path: string;
  }
}

export default async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(tmpdir(), 'mangrove-vitest-'));
  const path = join(directory, 'db');
  const { db, free, sold, places } = await openTickets(path);
  await free.setMany(Array.from({ length: SEATS }, (_, seat) => [seat, 'free']));
  provide('path', path);

  return async () => {
    console.log(`${await places.size} places have sold ${await sold.size} seats; ${await free.size} are free`);
    await db.close();
    await rm(directory, { recursive: true });
  };
}
