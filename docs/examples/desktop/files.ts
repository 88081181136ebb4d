// The data: files whose words are to be counted. Both processes open it.
import { keyCodecs, open } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';

export interface File {
  readonly status: 'waiting' | 'counted';
  readonly words?: number;
  /** The process that counted them. */
  readonly pid?: number;
}

export interface Files {
  readonly db: Database;
  readonly files: Collection<string, File>;
}

export async function openFiles(path: string): Promise<Files> {
  const db = await open(path);
  const files = db.collection<string, File>('files', {
    key: keyCodecs.string,
    indexes: { byStatus: { key: ({ status }) => status } },
  });
  return { db, files };
}
