// Which keys of a collection are in mode "strict": all, none, or those that begin with a prefix.
import { prefixRange, TextEncoder } from 'mangrove-kv/internal';
import { KvError } from 'mangrove-kv';
import type { Key, KeyCodec, KeyPrefix } from 'mangrove-kv';
import { compareBytes, fromHexBytes, toHexBytes } from './bytes.ts';

/** "merge": last writer wins, works offline. "strict": serializable, by `transaction` and online. */
export type ReplicationMode = 'merge' | 'strict';

/** The mode of the keys that begin with a prefix. */
export interface PrefixMode {
  /** As in ranges: of a string, of binary, or the first elements of an array. */
  readonly prefix: string | Uint8Array | readonly Key[];
  readonly mode: ReplicationMode;
}

/** Replication has collections of its own for each, with longer names. */
export const MAX_NAME_BYTES = 200;

export const isReplicableName = (name: string): boolean => new TextEncoder().encode(name).length <= MAX_NAME_BYTES;

/** A declaration is at most so long. */
export const MAX_DECLARATION = 4096;

interface ModeRange {
  readonly lower: Uint8Array;
  readonly upper: Uint8Array | undefined;
  readonly mode: ReplicationMode;
}

export class Modes {
  readonly #mode: ReplicationMode;
  /** Ranges of prefixes are apart or within each other; a range comes before those that it is within. */
  readonly #ranges: readonly ModeRange[];

  private constructor(mode: ReplicationMode, ranges: readonly ModeRange[]) {
    this.#mode = mode;
    this.#ranges = ranges;
  }

  /** `mode` is that of keys without a prefix of `prefixes`; of several prefixes the longest decides. */
  static of(
    collection: string,
    codec: KeyCodec<unknown>,
    mode: ReplicationMode,
    prefixes: readonly PrefixMode[],
  ): Modes {
    const name = JSON.stringify(collection);
    for (const each of [mode, ...prefixes.map((given) => given.mode)]) {
      if (each !== 'merge' && each !== 'strict')
        throw new KvError('KV_INVALID_ARGUMENT', `replicate: the mode of ${name} has to be "merge" or "strict"`);
    }
    const ranges = prefixes
      .map(({ prefix, mode: own }) => ({ ...prefixRange(codec, prefix as KeyPrefix<unknown>), mode: own }))
      .sort((a, b) => compareBytes(b.lower, a.lower) || (isWithin(a.upper, b.upper) ? -1 : 1));
    for (const [at, { lower, upper }] of ranges.entries()) {
      const next = ranges[at + 1];
      if (
        next !== undefined &&
        compareBytes(lower, next.lower) === 0 &&
        isWithin(upper, next.upper) &&
        isWithin(next.upper, upper)
      ) {
        throw new KvError('KV_INVALID_ARGUMENT', `replicate: a prefix of ${name} is named twice in \`prefixModes\``);
      }
    }
    return new Modes(mode, ranges);
  }

  /** The modes of a declaration. */
  static parse(declaration: string): Modes {
    const { mode, prefixes = [] } = JSON.parse(declaration) as Declaration;
    return new Modes(
      mode,
      prefixes.map(([lower, upper, own]) => ({
        lower: fromHexBytes(lower),
        upper: upper === null ? undefined : fromHexBytes(upper),
        mode: own,
      })),
    );
  }

  /** What all devices have to agree on: the ids of the codecs, and the modes. */
  declare(key: string, value: string): string {
    const prefixes = this.#ranges.map(
      ({ lower, upper, mode }) => [toHexBytes(lower), upper === undefined ? null : toHexBytes(upper), mode] as const,
    );
    const declaration: Declaration = { key, value, mode: this.#mode, ...(prefixes.length > 0 && { prefixes }) };
    return JSON.stringify(declaration);
  }

  isStrict(key: Uint8Array): boolean {
    const range = this.#ranges.find(
      ({ lower, upper }) => compareBytes(lower, key) <= 0 && (upper === undefined || compareBytes(key, upper) < 0),
    );
    return (range?.mode ?? this.#mode) === 'strict';
  }

  /** Whether keys can be in a mode. */
  has(mode: ReplicationMode): boolean {
    return this.#mode === mode || this.#ranges.some((range) => range.mode === mode);
  }
}

interface Declaration {
  readonly key: string;
  readonly value: string;
  readonly mode: ReplicationMode;
  readonly prefixes?: readonly (readonly [lower: string, upper: string | null, mode: ReplicationMode])[];
}

const isMode = (mode: unknown): boolean => mode === 'merge' || mode === 'strict';
const isHex = (text: unknown): boolean => typeof text === 'string' && /^([0-9a-f]{2})*$/.test(text);

/** Whether a text of a record declares a collection. */
export function isDeclaration(text: string): boolean {
  if (text.length > MAX_DECLARATION) return false;
  try {
    const { key, value, mode, prefixes = [] } = JSON.parse(text) as Declaration;
    return (
      typeof key === 'string' &&
      typeof value === 'string' &&
      isMode(mode) &&
      Array.isArray(prefixes) &&
      prefixes.every(([lower, upper, own]) => isHex(lower) && (upper === null || isHex(upper)) && isMode(own))
    );
  } catch {
    return false;
  }
}

function isWithin(upper: Uint8Array | undefined, other: Uint8Array | undefined): boolean {
  return other === undefined || (upper !== undefined && compareBytes(upper, other) <= 0);
}
