// The live views: a window of an order, joined twice, and a join that is grouped.
import { count, createLiveQueryCollection, eq, sum } from '@tanstack/db';
import type { Collection } from '@tanstack/db';
import type { Customer, Order, Product } from './data.ts';
import type { Storage } from './storage.ts';

export const PAGE_SIZE = 25;

export interface Collections {
  readonly orders: Collection<Order, number>;
  readonly customers: Collection<Customer, number>;
  readonly products: Collection<Product, number>;
}

/** A row of the page of newest orders. */
export interface NewestRow {
  readonly id: number;
  readonly placedAt: number;
  readonly quantity: number;
  readonly amount: number;
  readonly price: number | undefined;
  readonly customer: string | undefined;
  readonly country: string | undefined;
  readonly product: string | undefined;
}

export interface CountryRow {
  readonly country: string | undefined;
  readonly orders: number;
  readonly amount: number;
}

/** What is shown of a live view. */
export interface View<T> {
  readonly rows: () => readonly T[];
  /** Resolves when the rows are complete. */
  readonly ready: Promise<void>;
  /** Calls back after each change. */
  readonly follow: (changed: () => void) => void;
  readonly close: () => Promise<void>;
}

/** A view that shows a part of its rows. */
export interface PagedView<T> extends View<T> {
  /** Resolves when the page is complete. */
  readonly turnTo: (page: number) => Promise<void>;
}

export const collectionsOf = (storage: Storage): Collections => ({
  orders: storage.collection<Order>({ name: 'orders', indexes: ['placedAt', 'day'] }),
  customers: storage.collection<Customer>({ name: 'customers', indexes: ['id'] }),
  products: storage.collection<Product>({ name: 'products', indexes: ['id'] }),
});

interface Live<T> {
  readonly toArray: T[];
  preload(): Promise<void>;
  subscribeChanges(changed: () => void): unknown;
  cleanup(): Promise<void>;
}

const viewOf = <T>(live: Live<T>): View<T> => ({
  rows: () => live.toArray,
  ready: live.preload(),
  follow: (changed) => void live.subscribeChanges(changed),
  close: () => live.cleanup(),
});

/** The newest orders, a page at a time, with their customers and products. */
export function newestOrders({ orders, customers, products }: Collections): PagedView<NewestRow> {
  const live = createLiveQueryCollection({
    gcTime: 1,
    query: (q) =>
      q
        .from({ order: orders })
        .leftJoin({ customer: customers }, ({ order, customer }) => eq(order.customer, customer.id))
        .leftJoin({ product: products }, ({ order, product }) => eq(order.product, product.id))
        .orderBy(({ order }) => order.placedAt, 'desc')
        .limit(PAGE_SIZE)
        .select(({ order, customer, product }) => ({
          id: order.id,
          placedAt: order.placedAt,
          quantity: order.quantity,
          amount: order.amount,
          price: product?.price,
          customer: customer?.name,
          country: customer?.country,
          product: product?.name,
        })),
  });
  return {
    ...viewOf<NewestRow>(live),
    turnTo: async (page) => {
      await live.utils.setWindow({ offset: page * PAGE_SIZE, limit: PAGE_SIZE });
    },
  };
}

/** The orders of a day, by the countries of their customers. */
export function dayByCountry({ orders, customers }: Collections, day: number): View<CountryRow> {
  const live = createLiveQueryCollection({
    gcTime: 1,
    query: (q) =>
      q
        .from({ order: orders })
        .where(({ order }) => eq(order.day, day))
        .leftJoin({ customer: customers }, ({ order, customer }) => eq(order.customer, customer.id))
        .groupBy(({ customer }) => customer?.country)
        .orderBy(({ customer }) => customer?.country)
        .select(({ order, customer }) => ({
          country: customer?.country,
          orders: count(order.id),
          amount: sum(order.amount),
        })),
  });
  return viewOf<CountryRow>(live);
}
