// Publishes calls on the tracing channel "mangrove-kv:call" of node:diagnostics_channel. A database that is
// opened while nobody subscribes has no code for that on the path of its calls: methods of a traced database are
// replaced by own properties.
import * as diagnostics from 'node:diagnostics_channel';
import type { CallTrace } from '../types/calls.ts';
import type { Database } from '../types/index.ts';

const EVENTS = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'] as const;
type Channels = Record<(typeof EVENTS)[number], diagnostics.Channel>;

/** Missing in some runtimes. */
const channels = (diagnostics as Partial<typeof diagnostics>).tracingChannel?.('mangrove-kv:call') as
  | Channels
  | undefined;

function hasSubscribers(): boolean {
  return channels !== undefined && EVENTS.some((event) => channels[event].hasSubscribers);
}

type Callback = (...args: unknown[]) => unknown;
type Methods = Record<string, Callback>;
type About = Pick<CallTrace, 'database' | 'persistence' | 'scope' | 'isSync'>;

type Opened = object & Pick<Database, 'path' | 'persistence'>;

/** Calls that are about one collection, on whatever has them. */
const OF_COLLECTION = [
  ...['get', 'getRange', 'getStream', 'getMany', 'getEntry', 'has', 'hasMany', 'first', 'last', 'at', 'count'],
  ...['rank', 'forEach', 'nextExpiry', 'set', 'setStream', 'setMany', 'delete', 'deleteMany', 'clear'],
  ...['getOrInsert', 'getOrInsertComputed', 'update', 'buildIndexes', 'dropIndex'],
];
/** Calls of databases and transactions. The first argument of some is the name of a collection. */
const OF_DATABASE = [
  ...['collections', 'commit', 'purgeExpired', 'refresh', 'flush', 'stats'],
  ...['layout', 'verify', 'compact', 'changeKey', 'reencrypt', 'close'],
];
const TRANSACTIONS = ['transaction', 'tryTransaction'];
const BY_NAME = ['dropCollection', 'renameCollection'];
const ITERATORS = ['entries', 'keys', 'values', 'prefix'];
const MANY = ['getMany', 'hasMany', 'setMany', 'deleteMany'];

const { then } = Promise.prototype;

function publishError(context: CallTrace, error: unknown): void {
  context.error = error;
  channels!.error.publish(context);
}

/** As `TracingChannel.traceSync`. */
function traceSync(context: CallTrace): unknown {
  return channels!.start.runStores(context, () => {
    try {
      context.result = context.run();
      return context.result;
    } catch (error) {
      publishError(context, error);
      throw error;
    } finally {
      channels!.end.publish(context);
    }
  });
}

/**
 * As `TracingChannel.tracePromise`. Promises of the writes of transactions know whether their caller handles
 * them, so those are returned as they are.
 */
function traceAsync(context: CallTrace): Promise<unknown> {
  const done = (): void => {
    channels!.asyncStart.publish(context);
    channels!.asyncEnd.publish(context);
  };
  return channels!.start.runStores(context, () => {
    try {
      const promise = context.run() as Promise<unknown>;
      const isPlain = promise.constructor === Promise;
      const outcome: Promise<unknown> = then.call(
        promise,
        (result) => {
          context.result = result;
          done();
          return result;
        },
        (error: unknown) => {
          publishError(context, error);
          done();
          if (isPlain) throw error;
        },
      );
      return isPlain ? outcome : promise;
    } catch (error) {
      publishError(context, error);
      throw error;
    } finally {
      channels!.end.publish(context);
    }
  });
}

function trace(context: CallTrace): unknown {
  return context.isSync ? traceSync(context) : traceAsync(context);
}

/** Traces how a database is opened, and its calls from then on. `name` is as it was given to `open`. */
export function traceOpen<D extends Opened>(name: string | URL, open: () => Promise<D>): Promise<D> {
  if (!hasSubscribers()) return open();
  return traceAsync(ofOpen(name, false, async () => traceCalls(await open()))) as Promise<D>;
}

/** As `traceOpen`. */
export function traceOpenSync<D extends Opened>(name: string | URL, open: () => D): D {
  if (!hasSubscribers()) return open();
  return traceSync(ofOpen(name, true, () => traceCalls(open()))) as D;
}

const UNKNOWN = { persistence: undefined, collection: undefined, index: undefined, count: undefined } as const;

function ofOpen(name: string | URL, isSync: boolean, run: () => unknown): CallTrace {
  return { ...UNKNOWN, database: String(name), operation: 'open', scope: 'database', isSync, run };
}

function traceCalls<D extends Opened>(db: D): D {
  const { path, persistence } = db;
  return decorate(db, { database: path, persistence, scope: 'database', isSync: false });
}

function replace(object: object, name: string, value: Callback): void {
  Object.defineProperty(object, name, { value, configurable: true, writable: true });
}

/** Replaces the methods of a database, collection, transaction, snapshot or index; returns the same object. */
function decorate<T extends object>(object: T, about: About, index?: string): T {
  const methods = object as unknown as Methods & { readonly verbs?: { readonly target: { readonly name: string } } };
  const collection = methods.verbs?.target.name;
  const contextOf = (run: () => unknown, operation: string, of: string | undefined, count?: number): CallTrace => ({
    // Not spread, which takes longer than the call.
    database: about.database,
    persistence: about.persistence,
    scope: about.scope,
    isSync: about.isSync,
    operation,
    collection: of,
    index,
    count,
    run,
  });
  /** Replaces the methods that there are. `call` makes the call as it is without a trace. */
  const wrap = (
    names: readonly string[],
    traced: (name: string, call: () => unknown, args: readonly unknown[]) => unknown,
  ): void => {
    for (const name of names) {
      const original = methods[name];
      if (typeof original !== 'function') continue;
      replace(object, name, (...args) => {
        const call = (): unknown => original.apply(object, args);
        return hasSubscribers() ? traced(name, call, args) : call();
      });
    }
  };
  const inside = (made: unknown, scope = about.scope, name?: unknown): object =>
    decorate(made as object, { ...about, scope }, name as string | undefined);
  wrap(OF_COLLECTION, (name, call, [items]) =>
    trace(contextOf(call, name, collection, MANY.includes(name) ? countOf(items) : undefined)),
  );
  wrap(OF_DATABASE, (name, call) => trace(contextOf(call, name, undefined)));
  wrap(BY_NAME, (name, call, [of]) => trace(contextOf(call, name, String(of))));
  wrap(ITERATORS, (name, call) => traceIterator(contextOf(call, name, collection)));
  wrap(['batch'], (name, call, args) => {
    if (args.length > 0) return trace(contextOf(call, name, undefined, countOf(args[0])));
    return decorateBatch(call() as object, (commit, count) => contextOf(commit, name, undefined, count));
  });
  wrap(['collection'], (_, call) => inside(call()));
  wrap(['index'], (_, call, [name]) => inside(call(), about.scope, name));
  wrap(['begin'], (_, call) => inside(call(), 'transaction'));
  wrap(['snapshot'], (_, call) => inside(call(), 'snapshot'));
  for (const name of TRANSACTIONS) {
    const original = methods[name];
    if (typeof original !== 'function') continue;
    replace(object, name, (callback, ...options) => {
      // The call refuses what is no function.
      if (!hasSubscribers() || typeof callback !== 'function') return original.call(object, callback, ...options);
      const counted = (tx: object): unknown => {
        context.attempts = (context.attempts ?? 0) + 1;
        return (callback as Callback)(inside(tx, 'transaction'));
      };
      const context = contextOf(() => original.call(object, counted, ...options), name, undefined);
      context.attempts = 0;
      return trace(context);
    });
  }
  if (!about.isSync) decorateSync(object, about);
  return object;
}

/** The synchronous face of a database or snapshot, which is made when it is asked for. */
function decorateSync(object: object, about: About): void {
  const { get } = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(object), 'sync') ?? {};
  if (get === undefined) return;
  const decorated = new WeakSet<object>();
  Object.defineProperty(object, 'sync', {
    get() {
      const face = get.call(object) as object;
      if (!decorated.has(face)) decorated.add(decorate(face, { ...about, isSync: true }));
      return face;
    },
    configurable: true,
  });
}

function decorateBatch(batch: object, contextOf: (commit: () => unknown, count: number) => CallTrace): object {
  const { commit, collection } = batch as unknown as Record<'commit' | 'collection', Callback>;
  replace(batch, 'commit', (...args) => {
    const call = (): unknown => commit.apply(batch, args);
    return hasSubscribers() ? trace(contextOf(call, (batch as { readonly length: number } & object).length)) : call();
  });
  replace(batch, 'collection', (...args) => decorateBatch(collection.apply(batch, args) as object, contextOf));
  return batch;
}

function countOf(items: unknown): number | undefined {
  const { length, size } = (items ?? {}) as { readonly length?: unknown; readonly size?: unknown };
  if (typeof items === 'object')
    return typeof length === 'number' ? length : typeof size === 'number' ? size : undefined;
  return undefined;
}

interface Step {
  readonly done?: boolean;
}

/** An iterator reads from its creation on, and is one call until it ends. */
function traceIterator(context: CallTrace): object {
  context.items = 0;
  let isRunning = true;
  const ended = (): void => {
    if (!isRunning) return;
    isRunning = false;
    if (context.isSync) channels!.end.publish(context);
    else {
      channels!.asyncStart.publish(context);
      channels!.asyncEnd.publish(context);
    }
  };
  const failed = (error: unknown): never => {
    if (isRunning) publishError(context, error);
    ended();
    throw error;
  };
  const took = <T>(result: T, items: number, isAtEnd: boolean): T => {
    context.items = (context.items ?? 0) + items;
    if (isAtEnd) ended();
    return result;
  };
  const stepped = (step: Step): Step => took(step, step.done ? 0 : 1, step.done === true);
  /** Applies `take` to what a call returns or resolves to. */
  const after = <T>(call: () => unknown, take: (result: T) => T): unknown => {
    try {
      const result = call();
      return context.isSync ? take(result as T) : (result as Promise<T>).then(take, failed);
    } catch (error) {
      return failed(error);
    }
  };
  let iterator: object;
  try {
    iterator = channels!.start.runStores(context, () => context.run() as object);
  } catch (error) {
    return failed(error);
  } finally {
    if (!context.isSync) channels!.end.publish(context);
  }
  const { next, nextMany, return: stop } = iterator as Methods;
  replace(iterator, 'next', () => after(() => next!.call(iterator), stepped));
  replace(iterator, 'return', () =>
    after<Step>(
      () => stop!.call(iterator),
      (step) => took(step, 0, true),
    ),
  );
  if (nextMany !== undefined) {
    replace(iterator, 'nextMany', (max) =>
      after<unknown[]>(
        () => nextMany.call(iterator, max),
        (items) => took(items, items.length, items.length < (max as number)),
      ),
    );
  }
  return iterator;
}
