// Replicates a database in a worker; the page uses the database, and replication without a log.
import { logOf, openReplicated } from './replicating.ts';
import type { Told } from './replicating.ts';

const tell = (told: Told): void => postMessage(told);

addEventListener(
  'message',
  ({ data: { device, servers } }: MessageEvent<{ readonly device: string; readonly servers: readonly string[] }>) => {
    const log = logOf(device, servers, () => tell({ type: 'append' }));
    openReplicated(device, log, (conflict) => tell({ type: 'resolve', conflict })).catch((error: unknown) =>
      tell({ type: 'error', message: String(error) }),
    );
  },
);
