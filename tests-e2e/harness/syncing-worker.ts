// Synchronizes a database in a worker; the page uses the database, and sync without a log.
import { logOf, synchronize } from './syncing.ts';
import type { Told } from './syncing.ts';

const tell = (told: Told): void => postMessage(told);

addEventListener('message', ({ data: { device, servers } }: MessageEvent<{ readonly device: string; readonly servers: readonly string[] }>) => {
  const log = logOf(device, servers, () => tell({ type: 'append' }));
  synchronize(device, log, (conflict) => tell({ type: 'resolve', conflict }))
    .catch((error: unknown) => tell({ type: 'error', message: String(error) }));
});
