// Calls to a worker as programs that keep SQLite in one make them: a message for each, answered by number.
export type Methods = Record<string, (...values: never[]) => unknown>;

interface Call {
  readonly id: number;
  readonly method: string;
  readonly values: unknown[];
}

interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

/** In the worker. Calls are answered in their order. */
export function serve(methods: Methods): void {
  let last: Promise<unknown> = Promise.resolve();
  const answer = async ({ id, method, values }: Call): Promise<void> => {
    try {
      const value = await methods[method]?.(...(values as never[]));
      postMessage({ id, value } satisfies Answer);
    } catch (error) {
      postMessage({ id, error: error instanceof Error ? error.message : String(error) } satisfies Answer);
    }
  };
  addEventListener('message', ({ data }: MessageEvent<Call>) => {
    last = last.then(() => answer(data));
  });
}

/** In the page. */
export class Remote {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #next = 0;

  constructor(worker: Worker) {
    this.#worker = worker;
    worker.onmessage = ({ data: { id, value, error } }: MessageEvent<Answer>) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) waiting?.resolve(value);
      else waiting?.reject(new Error(error));
    };
    worker.onerror = ({ message }) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(message || 'the worker failed'));
      this.#waiting.clear();
    };
  }

  call<T>(method: string, ...values: unknown[]): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const id = this.#next++;
      this.#waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      this.#worker.postMessage({ id, method, values } satisfies Call);
    });
  }

  terminate(): void {
    this.#worker.terminate();
  }
}
