// Times and snapshots as the verbs print them.
import type { ArchivedSnapshot } from './replication.ts';

export const timeOf = (milliseconds: number): string => new Date(milliseconds).toISOString();

export function toShown(
  snapshot: ArchivedSnapshot | undefined,
): { readonly position: number; readonly time: string } | null {
  return snapshot === undefined ? null : { position: snapshot.position, time: timeOf(snapshot.serverTime) };
}
