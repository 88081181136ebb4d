// A counter with a history in a Durable Object; run it with `wrangler dev`. A response leaves the
// object only once the writes that it reports are stored.
import wasm from 'mangrove-kv/assets/mangrove_bg.wasm';
import { keyCodecs, open } from 'mangrove-kv/durable-object';
import type { Database, DurableObjectStorageLike } from 'mangrove-kv/durable-object';

// `@cloudflare/workers-types` has all of these.
interface State {
  readonly storage: DurableObjectStorageLike;
  blockConcurrencyWhile<T>(run: () => Promise<T>): Promise<T>;
}
interface Env {
  readonly COUNTERS: {
    idFromName(name: string): object;
    get(id: object): { fetch(request: Request): Promise<Response> };
  };
}

export class Counter {
  readonly #opening: Promise<Database>;

  constructor(state: State) {
    this.#opening = state.blockConcurrencyWhile(() => open(state.storage, { wasm }));
  }

  async fetch(request: Request): Promise<Response> {
    const db = await this.#opening;
    const history = db.collection<number, string>('history', { key: keyCodecs.int53 });
    if (request.method !== 'POST') return Response.json(await history.entries({ reverse: true, limit: 10 }).toArray());
    // Outside the callback, which may run again: a body can be read only once.
    const by = await request.text();
    const count = await db.transaction(async (tx) => {
      const next = Number((await tx.get('count')) ?? 0) + 1;
      await tx.set('count', next);
      await tx.collection(history).set(next, by);
      return next;
    });
    return Response.json(count);
  }
}

export default {
  fetch(request: Request, { COUNTERS }: Env): Promise<Response> {
    return COUNTERS.get(COUNTERS.idFromName(new URL(request.url).pathname)).fetch(request);
  },
};
