// Compares a value with structured clone's: nothing less, nothing more, and shared objects in the
// same places.

const tagOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

/** Content that an object's properties do not show. */
function content(value, tag) {
  switch (tag) {
    case 'Date':
    case 'Number':
    case 'String':
    case 'Boolean':
    case 'BigInt':
      return [value.valueOf()];
    case 'RegExp':
      return [value.source, value.flags];
    case 'ArrayBuffer':
      return [value.byteLength, value.resizable, value.maxByteLength, ...new Uint8Array(value)];
    case 'Map':
      return [value.size, ...[...value].flat()];
    case 'Set':
      return [value.size, ...value];
    default:
      return [];
  }
}

/** A view's buffer counts on request only, because many decoders return views of their input. */
function view(value, withBuffers) {
  if (withBuffers) return [value.byteOffset, value.byteLength, value.buffer];
  return [value.byteLength, ...new Uint8Array(value.buffer, value.byteOffset, value.byteLength)];
}

/**
 * Returns the own properties with their attributes, in order; sorted for errors, whose order
 * differs between JavaScript engines.
 */
function properties(value, tag) {
  const isView = ArrayBuffer.isView(value);
  const keys = Reflect.ownKeys(value).filter(
    (key) => !(isView || tag === 'String') || typeof key === 'symbol' || !/^\d+$/.test(key),
  );
  if (tag === 'Error') keys.sort();
  return keys.flatMap((key) => {
    const { value: held, get, set, writable, enumerable, configurable } = Object.getOwnPropertyDescriptor(value, key);
    return [key, held, get, set, writable, enumerable, configurable];
  });
}

function parts(value, withBuffers) {
  if (typeof value === 'function') return undefined;
  const tag = tagOf(value);
  return [
    tag,
    Object.getPrototypeOf(value),
    ...(ArrayBuffer.isView(value) ? view(value, withBuffers) : content(value, tag)),
    ...properties(value, tag),
  ];
}

/** Iterative, so that depth does not matter. */
export function same(actual, expected, { withBuffers = false } = {}) {
  const pairs = [[actual, expected]];
  // Pairs each object with exactly one other, in both directions.
  const forwards = new Map();
  const backwards = new Map();
  while (pairs.length > 0) {
    const [a, b] = pairs.pop();
    if (Object(a) !== a || Object(b) !== b) {
      if (!Object.is(a, b)) return false;
      continue;
    }
    if (forwards.has(a) || backwards.has(b)) {
      if (forwards.get(a) !== b || backwards.get(b) !== a) return false;
      continue;
    }
    forwards.set(a, b);
    backwards.set(b, a);
    // Prototypes and other shared objects.
    if (a === b) continue;
    const partsOfA = parts(a, withBuffers);
    const partsOfB = parts(b, withBuffers);
    if (partsOfA === undefined || partsOfB === undefined || partsOfA.length !== partsOfB.length) return false;
    partsOfA.forEach((part, index) => pairs.push([part, partsOfB[index]]));
  }
  return true;
}
