// Following commits: those that touch a collection's range, or all of the database.
import { queueMicrotask } from '../../base/platform.ts';
import type {
  Change,
  Commit,
  CommitIterator,
  ReplicationChangesOptions,
  Subscription,
  WatchOptions,
} from '../../types/feed.ts';
import type { Bounds, SignalOptions } from '../../types/index.ts';
import { checkBoolean, checkCount, checkFunction, dispose, ignore, isAborted, onAbort } from '../../base/async.ts';
import type { CodecPair } from '../../wire/known-codecs.ts';
import type { Connection } from '../../wire/connection.ts';
import { Op } from '../../wire/opcodes.ts';
import { CHANGES, FOLLOW, WATCH, onlyBounds } from '../arguments.ts';
import { checkNames } from '../../base/names.ts';
import { toWindow } from '../range.ts';
import type { Target } from '../../wire/collection-target.ts';
import { FixedDecoders, RAW, StoredDecoders } from './decode.ts';
import { FeedIterator } from './iterator.ts';

/**
 * `read` returns the entries of a range, for the option `initial`; `check` throws for unknown
 * options.
 */
export function watch<K, V>(
  target: Target<K, V>,
  options: WatchOptions<K> = {},
  read: (range: Bounds<K>) => Promise<[K, V][]> = () => Promise.resolve([]),
  check = (): unknown => checkNames('watch', options, WATCH),
): CommitIterator<K, V> {
  const { connection, index, key, value, name } = target;
  const { initial = false, signal } = options ?? {};
  const readAll = async (): Promise<Change<K, V>[]> => {
    const entries = await read(onlyBounds(options));
    return entries.map((entry) => ({ type: 'set', collection: name, key: entry[0], value: entry[1] }));
  };
  return new FeedIterator<K, V>({
    connection,
    prepare: () => {
      // `writeFilter` checks this too, but is not called if the database is closed.
      check();
      checkBoolean('initial', initial);
      return new FixedDecoders({ key, value } as unknown as CodecPair);
    },
    since: undefined,
    writeFilter: (writer) =>
      writer
        .u8(1)
        .uv(index)
        .range(toWindow(target, 'watch', options, WATCH).range),
    signal,
    first: initial ? readAll : undefined,
  });
}

export function changes(connection: Connection, options: ReplicationChangesOptions = {}): CommitIterator {
  const { since, signal, raw, only } = options ?? {};
  return new FeedIterator<unknown, unknown>({
    connection,
    prepare: () => {
      checkNames('changes', options, CHANGES);
      if (since !== undefined) checkCount('since', since);
      if (raw) return new FixedDecoders(RAW, only);
      const decoders = new StoredDecoders(connection);
      // The feed announces the codecs of collections that are created later.
      connection.post(
        (writer) => writer.u8(Op.collections),
        (reader) => {
          for (let left = reader.uv(); left > 0; left--) {
            const name = reader.str();
            reader.uv();
            decoders.note(name, [reader.str(), reader.str()]);
          }
        },
      );
      return decoders;
    },
    since,
    writeFilter: (writer) => writer.u8(0),
    signal,
  });
}

/** Reports an error as an uncaught exception. */
function report(error: unknown): void {
  if (typeof globalThis.reportError === 'function') globalThis.reportError(error);
  else
    queueMicrotask(() => {
      throw error;
    });
}

export function subscribe<K, V>(
  target: Target<K, V>,
  range: Bounds<K> & SignalOptions,
  listener: (commit: Commit<K, V>) => void,
): Subscription {
  checkFunction(listener);
  // Throws at once if the range is invalid.
  toWindow(target, 'subscribe', range, FOLLOW);
  const { signal } = range ?? {};
  if (isAborted(signal)) return { unsubscribe: ignore, [dispose]: ignore };
  const commits = watch(target, onlyBounds(range ?? {}));
  let isActive = true;
  const listen = async (): Promise<void> => {
    for await (const commit of commits) {
      if (!isActive) return;
      try {
        listener(commit);
      } catch (error) {
        report(error);
      }
    }
  };
  listen()
    .catch((error: unknown) => {
      if (isActive) report(error);
    })
    .finally(() => forgetSignal());
  const unsubscribe = (): void => {
    isActive = false;
    forgetSignal();
    commits.return().catch(ignore);
  };
  const forgetSignal = onAbort(signal, unsubscribe);
  return { unsubscribe, [dispose]: unsubscribe };
}
