// Records the traces of one database: keeps the newest, and hands them out.
import { KvError } from './errors.ts';
import { toPlain } from './plain-error.ts';
import { diagnostics } from './platform.ts';
import type { OpenTrace, Trace, TraceEvent } from './trace.ts';

/** Number of events that are kept. */
const KEPT = 200;

type Persistence = Extract<OpenTrace, { readonly event: 'opened' }>['persistence'];

export class Tracer {
  readonly #kept: TraceEvent[] = [];
  readonly record: Trace;

  private constructor(database: string, callback: ((event: TraceEvent) => void) | undefined) {
    this.record = (detail) => {
      const event = { time: Date.now(), database, ...detail };
      if (this.#kept.push(event) > KEPT) this.#kept.shift();
      // Later, so that nobody's code runs in the middle of what is traced. If it fails, that does not matter here.
      Promise.resolve(event)
        .then((each) => {
          diagnostics?.publish(each);
          return callback?.(each);
        })
        .catch(() => {});
    };
  }

  /** Undefined if nobody wants traces. */
  static of(database: string, trace: boolean | ((event: TraceEvent) => void)): Tracer | undefined {
    if (trace === false && !diagnostics?.hasSubscribers) return undefined;
    return new Tracer(database, typeof trace === 'function' ? trace : undefined);
  }

  /** Attaches the newest events to an error, and returns it. */
  attach<E>(error: E): E {
    if (error instanceof KvError) Object.defineProperty(error, 'trace', { value: [...this.#kept], configurable: true });
    return error;
  }

  opened({ persistence }: { readonly persistence: Persistence }): void {
    this.record({ source: 'open', event: 'opened', persistence });
  }

  /** Returns the error with the traces. */
  failed(error: unknown): unknown {
    this.record({ source: 'open', event: 'failed', error: toPlain(error) });
    return this.attach(error);
  }

  /** Traces how an `open` ends. */
  async opening<D extends { readonly persistence: Persistence }>(opening: Promise<D>): Promise<D> {
    try {
      const db = await opening;
      this.opened(db);
      return db;
    } catch (error) {
      throw this.failed(error);
    }
  }
}
