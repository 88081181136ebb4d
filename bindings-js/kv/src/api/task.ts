// Verbs describe what they ask of the engine as tasks; a face is a class whose methods carry the
// tasks of its verbs out.
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
  return 'next' in task ? yield* task : ((yield task) as T);
}

/** Carries a task out asynchronously. Its first request is sent before this returns. */
export function promised<T>(connection: Connection, task: Task<T>): Promise<T> {
  if ('write' in task)
    return task.loads ? connection.requestLoading(task.write, task.read) : connection.request(task.write, task.read);
  if ('found' in task) return Promise.resolve(task.found);
  return 'next' in task ? walk(connection, task) : task;
}

async function walk<T>(connection: Connection, steps: Steps<T>): Promise<T> {
  for (let now = steps.next(); ; ) {
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
  for (let now = steps.next(); ; ) {
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

/** The verbs of a collection or an index. */
export interface Verbs {
  readonly target: { readonly connection: Connection };
}

/**
 * Carries a verb out for an asynchronous face, whose caller may stop waiting. The stack of an error
 * has ten frames, and has to lead to the caller: the method, this, and the function that names the
 * verb are three.
 */
export function run<V extends Verbs, T>(verbs: V, verb: (verbs: V) => Task<T>, options?: SignalOptions): Promise<T> {
  try {
    const signal = options?.signal;
    checkSignal(signal);
    return abortable(promised(verbs.target.connection, verb(verbs)), signal);
  } catch (error) {
    return Promise.reject(error);
  }
}
