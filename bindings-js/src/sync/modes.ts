// Which keys of a collection are in mode "strict": all, none, or those that begin with a prefix.
import { KvError } from '../base/errors.ts';
import { prefixRange } from '../codec/keys.ts';
import type { Key, KeyCodec, KeyPrefix } from '../codec/keys.ts';
import { compareBytes } from './bytes.ts';

/** "merge": last writer wins, works offline. "strict": serializable, by `transaction` and online. */
export type SyncMode = 'merge' | 'strict';

/** The mode of the keys that begin with a prefix. */
export interface PrefixMode {
  /** As in ranges: of a string, of binary, or the first elements of an array. */
  readonly prefix: string | Uint8Array | readonly Key[];
  readonly mode: SyncMode;
}

interface ModeRange {
  readonly lower: Uint8Array;
  readonly upper: Uint8Array | undefined;
  readonly mode: SyncMode;
}

export class Modes {
  readonly #mode: SyncMode;
  /** Ranges of prefixes are apart or within each other; a range comes before those that it is within. */
  readonly #ranges: readonly ModeRange[];

  /** `mode` is that of keys without a prefix of `prefixes`; of several prefixes the longest decides. */
  constructor(collection: string, codec: KeyCodec<unknown>, mode: SyncMode, prefixes: readonly PrefixMode[]) {
    const name = JSON.stringify(collection);
    for (const each of [mode, ...prefixes.map((given) => given.mode)]) {
      if (each !== 'merge' && each !== 'strict') throw new KvError('KV_INVALID_ARGUMENT', `syncDatabase: the mode of ${name} has to be "merge" or "strict"`);
    }
    this.#mode = mode;
    this.#ranges = prefixes.map(({ prefix, mode: own }) => ({ ...prefixRange(codec, prefix as KeyPrefix<unknown>), mode: own }))
      .sort((a, b) => compareBytes(b.lower, a.lower) || (isWithin(a.upper, b.upper) ? -1 : 1));
    for (const [at, { lower, upper }] of this.#ranges.entries()) {
      const next = this.#ranges[at + 1];
      if (next !== undefined && compareBytes(lower, next.lower) === 0 && isWithin(upper, next.upper) && isWithin(next.upper, upper)) {
        throw new KvError('KV_INVALID_ARGUMENT', `syncDatabase: a prefix of ${name} is named twice in \`prefixModes\``);
      }
    }
  }

  isStrict(key: Uint8Array): boolean {
    const range = this.#ranges.find(({ lower, upper }) => compareBytes(lower, key) <= 0 && (upper === undefined || compareBytes(key, upper) < 0));
    return (range?.mode ?? this.#mode) === 'strict';
  }

  /** Whether keys can be in a mode. */
  has(mode: SyncMode): boolean {
    return this.#mode === mode || this.#ranges.some((range) => range.mode === mode);
  }
}

function isWithin(upper: Uint8Array | undefined, other: Uint8Array | undefined): boolean {
  return other === undefined || (upper !== undefined && compareBytes(upper, other) <= 0);
}
