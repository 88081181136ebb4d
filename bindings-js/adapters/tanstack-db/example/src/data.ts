// Generates the example's rows. A row depends only on its number, so a test computes the expected views without a database.

export interface Order {
  readonly id: number;
  readonly customer: number;
  readonly product: number;
  quantity: number;
  /** In cents. */
  amount: number;
  /** Milliseconds since 1970. */
  readonly placedAt: number;
  /** Number of the day from the first one on. */
  readonly day: number;
}

export interface Customer {
  readonly id: number;
  readonly name: string;
  readonly country: string;
}

export interface Product {
  readonly id: number;
  readonly name: string;
  /** In cents. */
  readonly price: number;
}

/** How many rows of each kind there are. */
export interface Sizes {
  readonly orders: number;
  readonly customers: number;
  readonly products: number;
}

export const COUNTRIES = ['Brazil', 'Canada', 'Denmark', 'Egypt', 'France', 'Ghana', 'India', 'Japan', 'Kenya', 'Peru'];

const ORDERS_A_DAY = 1000;
const DAY_MS = 86_400_000;
const FIRST_DAY = Date.UTC(2024, 0, 1);
/** A prime, so that its multiples reach each place once. */
const STEP = 48_271;

export function sizesOf(rows: number): Sizes {
  const customers = Math.ceil(rows / 50);
  const products = Math.ceil(rows / 1000);
  return { orders: rows - customers - products, customers, products };
}

export const lastDayOf = ({ orders }: Sizes): number => Math.floor((orders - 1) / ORDERS_A_DAY);

/** A number from 0 on, below `limit`, that looks random. */
function scattered(n: number, seed: number, limit: number): number {
  let bits = Math.imul(n ^ (seed * 0x9e3779b9), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return ((bits ^ (bits >>> 16)) >>> 0) % limit;
}

export const customerOf = (id: number): Customer => ({
  id,
  name: `Customer ${id}`,
  country: COUNTRIES[scattered(id, 1, COUNTRIES.length)]!,
});

export const productOf = (id: number): Product => ({
  id,
  name: `Product ${id}`,
  price: 100 + scattered(id, 2, 9900),
});

/** The id of the order at a place in the order of time is not the place: rows are stored in another order. */
export function orderOf(id: number, { orders, customers, products }: Sizes): Order {
  const place = Number((BigInt(id) * BigInt(STEP)) % BigInt(orders));
  const product = scattered(id, 3, products);
  const quantity = 1 + scattered(id, 4, 5);
  return {
    id,
    customer: scattered(id, 5, customers),
    product,
    quantity,
    amount: quantity * productOf(product).price,
    placedAt: FIRST_DAY + place * (DAY_MS / ORDERS_A_DAY),
    day: Math.floor(place / ORDERS_A_DAY),
  };
}

/** An order that is placed now, newer than all others. */
export function orderNow({ customers, products }: Sizes): Order {
  const id = Date.now();
  const product = scattered(id, 3, products);
  return {
    id,
    customer: scattered(id, 5, customers),
    product,
    quantity: 1,
    amount: productOf(product).price,
    placedAt: id,
    day: Math.floor((id - FIRST_DAY) / DAY_MS),
  };
}
