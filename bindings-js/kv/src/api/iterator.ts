// The base class of asynchronous iterators, with its helpers, and the iterator that these return.
import type { KvIterator } from '../types/index.ts';
import type { KeyPrefix } from '../codec/keys.ts';
import { KvError } from '../base/errors.ts';
import { abortable, asyncDispose, checkFunction, checkLimit } from '../base/async.ts';

export type Step<T> = IteratorResult<T, undefined>;
export const DONE: { readonly done: true; readonly value: undefined } = { done: true, value: undefined };

type Callback<T, R> = (item: T, index: number) => R;

/** The helpers follow TC39's iterator helpers in names and semantics. */
export abstract class BaseIterator<T, K> implements KvIterator<T, K> {
  /** @internal Its abort also ends the wait for a callback. */
  readonly signal: AbortSignal | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.signal = signal;
  }

  abstract next(): Promise<Step<T>>;
  abstract return(): Promise<Step<T>>;
  abstract seek(key: KeyPrefix<K>): void;

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [asyncDispose](): Promise<void> {
    await this.return();
  }

  async nextMany(max: number): Promise<T[]> {
    checkLimit('max', max);
    const items: T[] = [];
    while (items.length < max) {
      const step = await this.next();
      if (step.done) break;
      items.push(step.value);
    }
    return items;
  }

  async toArray(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }

  map<U>(fn: Callback<T, U | Promise<U>>): KvIterator<U, K> {
    checkFunction(fn);
    let index = 0;
    return new WrappedIterator(this, async () => {
      const step = await this.next();
      return step.done ? step : { done: false, value: await fn(step.value, index++) };
    });
  }

  filter<S extends T>(fn: (item: T, index: number) => item is S): KvIterator<S, K>;
  filter(fn: Callback<T, unknown>): KvIterator<T, K>;
  filter(fn: Callback<T, unknown>): KvIterator<T, K> {
    checkFunction(fn);
    let index = 0;
    return new WrappedIterator(this, async () => {
      for (;;) {
        const step = await this.next();
        if (step.done || (await fn(step.value, index++))) return step;
      }
    });
  }

  take(count: number): KvIterator<T, K> {
    let left = checkLimit('count', count);
    return new WrappedIterator(this, async () => {
      if (left <= 0) {
        await this.return();
        return DONE;
      }
      left--;
      return this.next();
    });
  }

  drop(count: number): KvIterator<T, K> {
    let left = checkLimit('count', count);
    return new WrappedIterator(this, async () => {
      for (; left > 0; left--) {
        const step = await this.next();
        if (step.done) return step;
      }
      return this.next();
    });
  }

  flatMap<U>(fn: Callback<T, Iterable<U> | AsyncIterable<U>>): KvIterator<U, K> {
    checkFunction(fn);
    const outer = this;
    let index = 0;
    async function* flatten(): AsyncGenerator<U, undefined> {
      for await (const item of outer) yield* checkItems(fn(item, index++));
      return undefined;
    }
    const inner = flatten();
    return new WrappedIterator(
      this,
      () => inner.next(),
      () => inner.return(undefined),
    );
  }

  async reduce<A>(fn: (acc: A, item: T, index: number) => A | Promise<A>, initial: A): Promise<A> {
    let acc = initial;
    await this.#until(fn, async (item, index) => {
      acc = await fn(acc, item, index);
      return false;
    });
    return acc;
  }

  async forEach(fn: Callback<T, unknown>): Promise<void> {
    await this.#until(fn, async (item, index) => {
      await fn(item, index);
      return false;
    });
  }

  async some(fn: Callback<T, unknown>): Promise<boolean> {
    return (await this.#until(fn, fn)) !== undefined;
  }

  async every(fn: Callback<T, unknown>): Promise<boolean> {
    return (await this.#until(fn, async (item, index) => !(await fn(item, index)))) === undefined;
  }

  async find(fn: Callback<T, unknown>): Promise<T | undefined> {
    return (await this.#until(fn, fn))?.item;
  }

  /** Reads up to the first item for which `ends` returns true. */
  async #until(fn: unknown, ends: Callback<T, unknown>): Promise<{ readonly item: T } | undefined> {
    checkFunction(fn);
    const work = async (): Promise<{ readonly item: T } | undefined> => {
      let index = 0;
      for await (const item of this) if (await ends(item, index++)) return { item };
      return undefined;
    };
    return this.interruptible(work());
  }

  /**
   * Like `abortable`, unless the signal is already aborted: then the source of the items rejects by
   * itself, and only once.
   */
  protected interruptible<R>(work: Promise<R>): Promise<R> {
    return this.signal?.aborted ? work : abortable(work, this.signal);
  }
}

function checkItems<T extends object>(items: T): T {
  if (Symbol.iterator in Object(items) || Symbol.asyncIterator in Object(items)) return items;
  throw new KvError('KV_INVALID_ARGUMENT', 'the callback of flatMap has to return an iterable');
}

/** An iterator whose items are made from those of another. */
class WrappedIterator<T, K> extends BaseIterator<T, K> {
  readonly #source: BaseIterator<unknown, K>;
  readonly #pull: () => Promise<Step<T>>;
  readonly #stop: (() => Promise<unknown>) | undefined;
  #tail: Promise<unknown> = Promise.resolve();
  #isDone = false;

  constructor(source: BaseIterator<unknown, K>, pull: () => Promise<Step<T>>, stop?: () => Promise<unknown>) {
    super(source.signal);
    this.#source = source;
    this.#pull = pull;
    this.#stop = stop;
  }

  override next(): Promise<Step<T>> {
    // One step at a time, so that items come in order however long a callback takes.
    const step = this.#tail.then(() => this.#step());
    this.#tail = step.catch(() => undefined);
    return this.interruptible(step);
  }

  override async return(): Promise<Step<T>> {
    this.#isDone = true;
    await this.#source.return();
    await this.#stop?.();
    return DONE;
  }

  override seek(key: KeyPrefix<K>): void {
    this.#source.seek(key);
  }

  async #step(): Promise<Step<T>> {
    if (this.#isDone) return DONE;
    try {
      const step = await this.#pull();
      if (step.done) this.#isDone = true;
      return step;
    } catch (error) {
      this.#isDone = true;
      // A `for await` loop does not call `return` on an iterator that failed.
      await this.#source.return();
      throw error;
    }
  }
}
