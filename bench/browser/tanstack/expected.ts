// What the example has to show, computed from its rows without a database.
import {
  customerOf,
  lastDayOf,
  orderOf,
  productOf,
  sizesOf,
} from '../../../bindings-js/adapters/tanstack-db/example/src/data.ts';

export interface Expected {
  /** Time, customer, country and product of each of the newest orders. */
  readonly newest: readonly string[];
  /** Countries with their numbers of orders on the last day. */
  readonly countries: readonly string[];
}

const PAGE_SIZE = 25;

export function expectedOf(rows: number): Expected {
  const sizes = sizesOf(rows);
  const day = lastDayOf(sizes);
  const orders = Array.from({ length: sizes.orders }, (_, id) => orderOf(id, sizes)).filter(
    (order) => order.day >= day - 1,
  );
  const newest = orders.sort((one, other) => other.placedAt - one.placedAt).slice(0, PAGE_SIZE);
  const counts = new Map<string, number>();
  for (const order of orders) {
    const { country } = customerOf(order.customer);
    if (order.day === day) counts.set(country, (counts.get(country) ?? 0) + 1);
  }
  return {
    newest: newest.map(({ placedAt, customer, product }) =>
      [
        new Date(placedAt).toISOString().slice(0, 16).replace('T', ' '),
        customerOf(customer).name,
        customerOf(customer).country,
        productOf(product).name,
      ].join(' '),
    ),
    countries: [...counts].map(([country, count]) => `${country} ${count}`).sort(),
  };
}
