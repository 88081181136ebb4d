// Verbs describe what they ask of the engine as tasks; a face is a class whose methods carry the
// tasks of its verbs out, and whose type is derived from theirs.
import { abortable, checkSignal } from '../base/async.ts';
import type { SignalOptions } from '../types/index.ts';
import type { Connection } from '../wire/connection.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';

/** A request with the reader of its reply. */
export interface Call<T> {
  readonly write: (writer: RequestWriter) => unknown;
  /**
   * Takes all of the reply's fields before it decodes any: a failing codec must not shift the next
   * reply.
   */
  readonly read: (reader: ReplyReader) => T;
  /** The engine may have to load code first. */
  readonly loads?: boolean;
}

/** Several calls in a row, and promises to await where the face may wait. */
export type Steps<T> = Generator<Task<unknown>, T, unknown>;

/** A result that takes no message. */
interface Found<T> {
  readonly found: T;
}

/** Promises only come from verbs that may wait. */
export type Task<T> = Call<T> | Steps<T> | Found<T> | Promise<T>;

/** A step: the reply to a call, or what a promise resolves to. */
export function* step<T>(from: Call<T> | Promise<T>): Steps<T> {
  return (yield from) as T;
}

/** All steps of another task. */
export function* within<T>(task: Task<T>): Steps<T> {
  if ('found' in task) return task.found;
  return 'next' in task ? yield* task : (yield task) as T;
}

/** Carries a task out asynchronously. Its first request is sent before this returns. */
export function promised<T>(connection: Connection, task: Task<T>): Promise<T> {
  if ('write' in task) return task.loads ? connection.requestLoading(task.write, task.read) : connection.request(task.write, task.read);
  if ('found' in task) return Promise.resolve(task.found);
  return 'next' in task ? walk(connection, task) : task;
}

async function walk<T>(connection: Connection, steps: Steps<T>): Promise<T> {
  for (let now = steps.next(); ;) {
    if (now.done) return now.value;
    let reply;
    try {
      reply = await promised(connection, now.value);
    } catch (error) {
      now = steps.throw(error);
      continue;
    }
    now = steps.next(reply);
  }
}

/** Carries a task out before it returns. */
export function immediate<T>(connection: Connection, task: Task<T>): T {
  if ('write' in task) return connection.requestSync(task.write, task.read);
  if ('found' in task) return task.found;
  const steps = task as Steps<T>;
  for (let now = steps.next(); ;) {
    if (now.done) return now.value;
    let reply;
    try {
      reply = immediate(connection, now.value);
    } catch (error) {
      now = steps.throw(error);
      continue;
    }
    now = steps.next(reply);
  }
}

/** The methods of an asynchronous face for the verbs `N` of `V`. */
export type Promised<V, N extends keyof V> = { [P in N]: V[P] extends (...args: infer A) => Task<infer T> ? (...args: A) => Promise<T> : never };

/** The same of a synchronous face. */
export type Immediate<V, N extends keyof V> = { [P in N]: V[P] extends (...args: infer A) => Task<infer T> ? (...args: A) => T : never };

interface Face {
  readonly verbs: { readonly target: { readonly connection: Connection } };
}

/** Carries a verb out for a face. The options, if the verb has any, are the argument `at`. */
type Run<F> = (face: F, name: string, args: readonly unknown[], at: number) => unknown;

/**
 * Gives a face a method for each of the names. The stack of an error has ten frames: between the
 * caller and the verb are that method and `run`.
 */
export function derive<F extends Face>(face: { readonly prototype: F }, names: readonly string[], run: Run<F>, at = Infinity): void {
  for (const name of names) {
    const methods = {
      [name](this: F, ...args: readonly unknown[]): unknown {
        return run(this, name, args, at);
      },
    };
    Object.defineProperty(face.prototype, name, { value: methods[name], writable: true, configurable: true });
  }
}

/** A face's verbs by name, of which `T` is what one returns. */
export function verbsOf<T>({ verbs }: Face): Record<string, (...args: readonly unknown[]) => T> {
  return verbs as unknown as Record<string, (...args: readonly unknown[]) => T>;
}

export const runPromised: Run<Face> = (face, name, args, at) => {
  try {
    const signal = args.length > at ? (args[at] as SignalOptions | undefined)?.signal : undefined;
    checkSignal(signal);
    return abortable(promised(face.verbs.target.connection, verbsOf<Task<unknown>>(face)[name]!(...args)), signal);
  } catch (error) {
    return Promise.reject(error);
  }
};

export const runImmediate: Run<Face> = (face, name, args) => immediate(face.verbs.target.connection, verbsOf<Task<unknown>>(face)[name]!(...args));
