// Callbacks beside promises. What a callback throws is an unhandled rejection, as in localForage.

/** A callback of Node's kind. */
export type Callback<T> = (error: unknown, result?: T) => void;

/** Calls back with the outcome of a promise; returns the promise. */
export function calling<T>(promise: Promise<T>, callback: Callback<T> | null | undefined): Promise<T> {
  if (callback) {
    promise.then(
      (result) => callback(null, result),
      (error: unknown) => callback(error),
    );
  }
  return promise;
}

/** Calls one of two functions with the outcome of a promise; returns the promise. */
export function callingBoth<T>(promise: Promise<T>, callback: unknown, errorCallback: unknown): Promise<T> {
  const [done, failed] = [callback, errorCallback].map((given) => (typeof given === 'function' ? given : undefined));
  if (done !== undefined || failed !== undefined)
    promise.then(done as ((result: T) => void) | undefined, failed as ((error: unknown) => void) | undefined);
  return promise;
}
