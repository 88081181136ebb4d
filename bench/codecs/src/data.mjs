// Typical data of programs, generated from a seed, so that every run has the same. Each set has
// several values, which are encoded one by one.

/** Seeded random numbers (mulberry32). */
export function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const next = random(1);
const below = (limit) => Math.floor(next() * limit);
const pick = (list) => list[below(list.length)];
const WORDS =
  'the of river house green light stone water open table garden winter letter mountain market small quiet road after before paper music'.split(
    ' ',
  );
const CITIES = [
  'Lisboa',
  'København',
  'São Paulo',
  'Zürich',
  'Osaka',
  'Kraków',
  'Nairobi',
  'Montréal',
  'Perth',
  'Reykjavík',
];
const words = (count) => Array.from({ length: count }, () => pick(WORDS)).join(' ');

function document(length) {
  let text = '';
  while (text.length < length) text += `${words(3 + below(9))}. `;
  return text.slice(0, length);
}

const user = (id) => ({
  id,
  name: `${pick(WORDS)} ${pick(WORDS)}`,
  email: `user${id}@example.org`,
  age: 18 + below(70),
  active: next() < 0.8,
  roles: next() < 0.2 ? ['admin', 'user'] : ['user'],
  createdAt: 1.7e12 + below(1e9),
});

const city = (id) => ({
  type: 'Feature',
  id,
  geometry: {
    type: 'Point',
    coordinates: [Math.round((next() * 360 - 180) * 1e5) / 1e5, Math.round((next() * 180 - 90) * 1e5) / 1e5],
  },
  properties: {
    name: pick(CITIES),
    country: pick(['PT', 'DK', 'BR', 'JP']),
    population: below(1e7),
    elevation: below(3000),
    timezone: 'Europe/Lisbon',
    capital: next() < 0.1,
  },
});

const product = (id) => ({
  sku: `SKU-${100_000 + id}`,
  title: words(5),
  description: document(200),
  price: { amount: below(10_000) / 100, currency: 'EUR' },
  stock: below(500),
  rating: below(50) / 10,
  tags: Array.from({ length: 4 }, () => pick(WORDS)),
  dimensions: { width: below(100) / 10, height: below(100) / 10, depth: below(100) / 10, unit: 'cm' },
  variants: Array.from({ length: 3 }, (_, at) => ({
    id: id * 10 + at,
    color: pick(['red', 'blue', 'green']),
    size: pick(['S', 'M', 'L']),
    available: next() < 0.7,
    image: null,
  })),
});

const logLine = (id) => ({
  time: new Date(1.7e12 + id * 1234).toISOString(),
  level: pick(['info', 'warn', 'error']),
  service: 'api',
  request: below(2 ** 31).toString(16),
  status: pick([200, 201, 404, 500]),
  ms: below(1e5) / 1000,
  message: words(8),
});

function state() {
  const owner = { id: below(1000), name: pick(WORDS) };
  return {
    version: 3,
    saved: new Date(1.7e12 + below(1e9)),
    owner,
    selection: new Set(Array.from({ length: 5 }, (_, at) => `item-${at * 7}`)),
    items: new Map(
      Array.from({ length: 10 }, (_, at) => [
        `item-${at}`,
        {
          owner,
          title: words(3),
          done: next() < 0.5,
          position: { x: next() * 100, y: next() * 100 },
          due: new Date(1.7e12 + below(1e9)),
          note: undefined,
        },
      ]),
    ),
    history: Array.from({ length: 5 }, (_, at) => ({
      at,
      action: pick(['add', 'move', 'remove']),
      path: ['items', `item-${at}`],
    })),
  };
}

const many = (count, make) => Array.from({ length: count }, (_, index) => make(index));

export const DATA = {
  'small user record': many(64, user),
  'city as GeoJSON': many(64, city),
  'product': many(32, product),
  'log line': many(64, logLine),
  'document of 1 KiB, ASCII': many(16, () => document(1024)),
  'text of 0.5 KiB, not ASCII': many(
    16,
    () => many(85, () => pick(['日本', '語の', '文書', 'です'])).join('') + pick(CITIES),
  ),
  '100 user records': many(4, () => many(100, user)),
  '500 small integers': many(4, () => many(500, () => below(1000))),
  '500 fractions': many(4, () => many(500, () => next())),
  'Float32Array, 4 KiB': many(8, () => Float32Array.from(many(1024, () => next()))),
  'Uint8Array, 4 KiB': many(8, () => Uint8Array.from(many(4096, () => below(256)))),
  'state with Map, Set, Date, shared': many(8, state),
};
