// Turns encoded bounds back into those a caller would write.
import { isSame } from '../../codec/bytes.ts';
import { MAX_KEY, encodeBound, prefixRange } from '../../codec/keys.ts';
import type { Bound, KeyCodec, KeyPrefix } from '../../codec/keys.ts';
import type { Bounds } from '../../types/index.ts';

/** An encoded bound; undefined if the range has none on that side. */
export type ByteBound = { readonly bytes: Uint8Array; readonly isExclusive: boolean } | undefined;

function attempt<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch {
    // The bytes are not a bound of this form.
    return undefined;
  }
}

/** The bound that encodes to these bytes; undefined if none does. */
function toBound<K>(codec: KeyCodec<K>, bytes: Uint8Array): Bound<K> | undefined {
  const candidates: (() => unknown)[] = [
    () => codec.decode(bytes),
    () => [...(codec.decode(bytes.subarray(0, -1)) as Iterable<unknown>), MAX_KEY],
    () => MAX_KEY,
  ];
  for (const candidate of candidates) {
    const bound = attempt(candidate) as Bound<K> | undefined;
    if (
      bound !== undefined &&
      isSame(
        bytes,
        attempt(() => encodeBound(codec, bound)),
      )
    )
      return bound;
  }
  return undefined;
}

export function toBounds<K>(
  codec: KeyCodec<K>,
  lower: ByteBound,
  upper: ByteBound,
): { readonly range: Bounds<K>; readonly isExact: boolean } {
  const from = lower && toBound(codec, lower.bytes);
  const to = upper && toBound(codec, upper.bytes);
  if (upper !== undefined && to === undefined && from !== undefined && lower?.isExclusive === false) {
    const prefix = from as KeyPrefix<K>;
    if (
      isSame(
        upper.bytes,
        attempt(() => prefixRange(codec, prefix).upper),
      )
    )
      return { range: { prefix }, isExact: true };
  }
  const range: Bounds<K> = {};
  if (from !== undefined) range[lower?.isExclusive ? 'gt' : 'gte'] = from;
  if (to !== undefined) range[upper?.isExclusive ? 'lt' : 'lte'] = to;
  return {
    range,
    isExact: (from === undefined) === (lower === undefined) && (to === undefined) === (upper === undefined),
  };
}
