// A worker with Durable Objects, as a user of the package writes one.
import wasm from 'mangrove-kv/assets/mangrove_bg.wasm';
// The module without encryption.
import plainWasm from 'mangrove-kv/assets/mangrove_core_bg.wasm';
import { DurableObjectStorage, open } from 'mangrove-kv/durable-object';
import type { Database, DurableObjectStorageLike } from 'mangrove-kv/durable-object';
import { testStorage } from '@mangrove-kv/storage-tests';

interface State {
  readonly storage: DurableObjectStorageLike;
  blockConcurrencyWhile(run: () => Promise<void>): Promise<void>;
  abort(reason: string): void;
}

/** Counts what it is asked to count. */
export class Counters {
  readonly #state: State;
  #db: Database | undefined;

  constructor(state: State) {
    this.#state = state;
    void state.blockConcurrencyWhile(async () => {
      this.#db = await open(state.storage, { wasm });
    });
  }

  async fetch(request: Request): Promise<Response> {
    const db = this.#db as Database;
    const { pathname, searchParams } = new URL(request.url);
    const key = searchParams.get('key') ?? '';
    switch (pathname) {
      case '/add':
        return Response.json(await db.update(key, (old) => Number(old ?? 0) + 1));
      case '/fill': {
        const count = Number(searchParams.get('count'));
        await db.setMany(
          Array.from({ length: count }, (_, index) => [['filled', index], 'x'.repeat(index % 3000)] as const),
        );
        return Response.json(await db.count({ prefix: ['filled'] }));
      }
      case '/check': {
        const stats = await db.stats();
        return Response.json({ ...(await db.verify()), fileSize: stats.fileSize, keys: await db.count() });
      }
      case '/locked':
        return Response.json(await codeOf(open(this.#state.storage, { wasm })));
      case '/other': {
        const other = await open(this.#state.storage, { wasm, name: 'other' });
        await other.set('only', 'here');
        const found = [await other.count(), await db.has('only')];
        await other.close();
        return Response.json(found);
      }
      case '/encrypted': {
        const { storage } = this.#state;
        const unlock = (passphrase: string): Promise<Database> =>
          open(storage, { wasm, name: 'secret', encryption: { passphrase, memoryKiB: 64 } });
        const db = await unlock('correct horse');
        const found = [await db.update('sum', (old) => Number(old ?? 0) + 1)];
        await db.close();
        return Response.json([
          ...found,
          await codeOf(unlock('correct horsf')),
          await codeOf(open(storage, { wasm, name: 'secret' })),
          await codeOf(open(storage, { wasm: plainWasm, name: 'plain', encryption: { passphrase: 'p' } })),
        ]);
      }
      case '/invalid': {
        const { storage } = this.#state;
        return Response.json([
          await codeOf(open(storage, { wasm: {} as WebAssembly.Module })),
          await codeOf(open(storage, { wasm, name: 'a/b' })),
          await codeOf(open(storage, { wasm, name: 'absent', create: false })),
        ]);
      }
      case '/die':
        // Not awaited: the object is gone before it could report anything.
        void db.set(key, 'lost');
        this.#state.abort('killed');
        return Response.json(null);
      default:
        return new Response(null, { status: 404 });
    }
  }
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'none',
    (error: { code?: string }) => error.code ?? String(error),
  );
}

/** Runs the tests of storages on its own. */
export class Conformance {
  readonly #state: State;

  constructor(state: State) {
    this.#state = state;
  }

  async fetch(): Promise<Response> {
    let made = 0;
    const names = new WeakMap<object, string>();
    const make = (name: string): DurableObjectStorage => {
      const storage = new DurableObjectStorage(this.#state.storage, name);
      names.set(storage, name);
      return storage;
    };
    const passed: string[] = [];
    const failed: string[] = [];
    let before: unknown;
    await testStorage(() => make(`storage ${made++}`), {
      reopen: (storage) => make(names.get(storage) as string),
      open: async (storage, options) => open(this.#state.storage, { ...options, wasm, name: names.get(storage) }),
      // One after the other.
      test: (name, run) => {
        const result = Promise.resolve(before)
          .then(run)
          .then(
            () => passed.push(name),
            (error: Error) => failed.push(`${name}: ${error.message}`),
          );
        before = result;
        return result;
      },
    });
    return Response.json({ passed, failed });
  }
}

/** Of a class without SQLite. */
export class WithoutSql {
  readonly #state: State;

  constructor(state: State) {
    this.#state = state;
  }

  async fetch(): Promise<Response> {
    return Response.json(await codeOf(open(this.#state.storage, { wasm })));
  }
}

interface Env {
  readonly WITHOUT_SQL: Namespace;
  readonly COUNTERS: Namespace;
  readonly CONFORMANCE: Namespace;
}

interface Namespace {
  idFromName(name: string): unknown;
  get(id: unknown): { fetch(request: Request): Promise<Response> };
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url);
    const objects = { '/conformance': env.CONFORMANCE, '/without-sql': env.WITHOUT_SQL }[pathname] ?? env.COUNTERS;
    try {
      return await objects.get(objects.idFromName(searchParams.get('object') ?? 'one')).fetch(request);
    } catch (error) {
      return new Response(String(error), { status: 500 });
    }
  },
};
