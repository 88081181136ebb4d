// What is tested: the tickets of a concert, sold in several places, each of which opens the database.
import { keyCodecs, open } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';

export interface Tickets {
  readonly db: Database;
  readonly free: Collection<number, string>;
  readonly sold: Collection<number, string>;
  readonly places: Collection<string, boolean>;
}

export async function openTickets(path: string): Promise<Tickets> {
  const db = await open(path);
  return {
    db,
    free: db.collection<number, string>('free', { key: keyCodecs.int53 }),
    sold: db.collection<number, string>('sold', { key: keyCodecs.int53 }),
    places: db.collection<string, boolean>('places', { key: keyCodecs.string }),
  };
}

/** Sells the first seat that is free; returns its number. */
export function sell({ db, free, sold }: Tickets, place: string): Promise<number | undefined> {
  return db.transaction(
    async (tx) => {
      const [seat] = (await tx.collection(free).first()) ?? [];
      if (seat === undefined) return undefined;
      await tx.collection(free).delete(seat);
      await tx.collection(sold).set(seat, place);
      return seat;
    },
    // All places want the same seat. Those that do not get it try again.
    { maxRetries: Infinity },
  );
}
