// The tests of one place. All places have to be open at once: each waits for the others.
import { liveValue } from 'mangrove-kv/live';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { openTickets, sell } from './tickets.ts';
import type { Tickets } from './tickets.ts';

const PLACES = 4;

export function testPlace(place: string): void {
  let tickets: Tickets;
  const mine: number[] = [];

  beforeAll(async () => {
    tickets = await openTickets(inject('path'));
    await tickets.places.set(place, true);
    const open = liveValue(tickets.places, ({ size }) => size);
    await new Promise<void>((resolve) => {
      const stop = open.subscribe(() => {
        if (open.getSnapshot().value !== PLACES) return;
        stop();
        resolve();
      });
    });
  });
  afterAll(() => tickets.db.close());

  test(`${place} sells seats until there are none`, async () => {
    for (;;) {
      const seat = await sell(tickets, place);
      if (seat === undefined) break;
      mine.push(seat);
    }
    expect(await tickets.free.size).toBe(0);
  });

  test(`nobody else has sold the seats of ${place}`, async () => {
    const entries = await tickets.sold.entries().toArray();
    expect(entries.filter(([, seller]) => seller === place).map(([seat]) => seat)).toEqual(mine);
  });
}
