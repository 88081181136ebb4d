// The CBOR (RFC 8949) profile of stored values: which tag stands for what. All numbers except
// `REFERENCE` are those of the IANA registry.

export const TAG_DATE = 1;
export const TAG_POSITIVE_BIGINT = 2;
export const TAG_NEGATIVE_BIGINT = 3;
/** `[class name, ...arguments]` */
export const TAG_OBJECT = 27;
export const TAG_SET = 258;
export const TAG_MAP = 259;
/** A string with lone surrogates, as WTF-8 bytes. */
export const TAG_WTF8 = 273;
/** `[source, flags]` */
export const TAG_REGEXP = 21066;
/**
 * An object that occurred before: its ordinal in the order in which objects begin. "MGVR", not
 * registered.
 */
export const TAG_REFERENCE = 0x4d475652;

/** Typed arrays of RFC 8746, little endian. `Uint8Array` is a plain byte string. */
export const TYPED_ARRAY_TAGS: Readonly<Record<string, number>> = {
  Uint8ClampedArray: 68,
  Uint16Array: 69,
  Uint32Array: 70,
  BigUint64Array: 71,
  Int8Array: 72,
  Int16Array: 77,
  Int32Array: 78,
  BigInt64Array: 79,
  Float16Array: 84,
  Float32Array: 85,
  Float64Array: 86,
};

export const FALSE = 0xf4;
export const TRUE = 0xf5;
export const NULL = 0xf6;
export const UNDEFINED = 0xf7;
/** A missing element of a sparse array. */
export const HOLE = 0xf0;
export const FLOAT32 = 0xfa;
export const FLOAT64 = 0xfb;

/** Names of errors that keep their class; others become `Error`, as in structured clone. */
export const ERROR_NAMES: readonly string[] = [
  'Error',
  'EvalError',
  'RangeError',
  'ReferenceError',
  'SyntaxError',
  'TypeError',
  'URIError',
];

/** Maximum nesting depth of a value. */
export const MAX_DEPTH = 1000;
