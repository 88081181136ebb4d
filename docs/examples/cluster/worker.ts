// One of the workers. `POST /<page>` counts a visit of the page, once for each `idempotency-key`, and
// answers with its number; `GET /<page>` lists the newest ones.
import { createServer } from 'node:http';
import { keyCodecs, open } from 'mangrove-kv';

interface Visit {
  /** The request that counted it, chosen by the client. */
  readonly id: string;
  /** The process of the worker that counted it. */
  readonly pid: number;
}
type VisitKey = readonly [page: string, number: number];

const [path = 'example-cluster', port = '8080'] = process.argv.slice(2);
const LISTED = 10;

// Each worker opens it; whichever is the first runs the engine for all.
const db = await open(path);
const counts = db.collection<string, number>('counts', { key: keyCodecs.string });
const visits = db.collection<VisitKey, Visit>('visits', {
  key: keyCodecs.tuple<VisitKey>(),
  indexes: { byId: { key: ({ id }) => id, unique: true } },
});

/** The visit's number. A client that got no answer asks again, perhaps another worker, and gets the same. */
function count(page: string, id: string): Promise<number> {
  return db.transaction(
    async (tx) => {
      const known = await tx.collection(visits).index('byId').first({ eq: id });
      if (known !== undefined) return known.key[1];
      const number = ((await tx.collection(counts).get(page)) ?? 0) + 1;
      await tx.collection(counts).set(page, number);
      await tx.collection(visits).set([page, number], { id, pid: process.pid });
      return number;
    },
    // It runs again whenever another worker has counted a visit of the page meanwhile.
    { maxRetries: Infinity },
  );
}

async function list(page: string): Promise<readonly { readonly number: number; readonly pid: number }[]> {
  const newest = await visits.entries({ prefix: [page], reverse: true, limit: LISTED }).toArray();
  return newest.map(([[, number], { pid }]) => ({ number, pid }));
}

const server = createServer((request, response) => {
  const page = request.url ?? '/';
  const id = request.headers['idempotency-key'];
  const answer = request.method === 'POST' && typeof id === 'string' ? count(page, id) : list(page);
  answer.then(
    (result) => response.setHeader('content-type', 'application/json').end(JSON.stringify(result)),
    (error: Error) => response.writeHead(500).end(error.message),
  );
});
server.listen(Number(port), '127.0.0.1');
// The primary ends the server first.
process.once('disconnect', () => void db.close());
