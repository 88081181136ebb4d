// Whether a value is what structured clone gives: nothing less, nothing more, and the same object in the same places.

const tagOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

/** What cannot be read from an object's properties. */
function content(value, tag) {
  switch (tag) {
    case 'Date':
    case 'Number':
    case 'String':
    case 'Boolean':
    case 'BigInt': return [value.valueOf()];
    case 'RegExp': return [value.source, value.flags];
    case 'ArrayBuffer': return [value.byteLength, value.resizable, value.maxByteLength, ...new Uint8Array(value)];
    case 'Map': return [value.size, ...[...value].flat()];
    case 'Set': return [value.size, ...value];
    default: return [];
  }
}

/** Only where it is asked for does a view's buffer count, as many decoders make views of the bytes they read. */
function view(value, withBuffers) {
  if (withBuffers) return [value.byteOffset, value.byteLength, value.buffer];
  return [value.byteLength, ...new Uint8Array(value.buffer, value.byteOffset, value.byteLength)];
}

/** Own properties with all that is to be known of them, in their order, but for errors: engines differ in that of an error's. */
function properties(value, tag) {
  const isView = ArrayBuffer.isView(value);
  const keys = Reflect.ownKeys(value).filter((key) => !(isView || tag === 'String') || typeof key === 'symbol' || !/^\d+$/.test(key));
  if (tag === 'Error') keys.sort();
  return keys.flatMap((key) => {
    const { value: held, get, set, writable, enumerable, configurable } = Object.getOwnPropertyDescriptor(value, key);
    return [key, held, get, set, writable, enumerable, configurable];
  });
}

function parts(value, withBuffers) {
  if (typeof value === 'function') return undefined;
  const tag = tagOf(value);
  return [tag, Object.getPrototypeOf(value), ...(ArrayBuffer.isView(value) ? view(value, withBuffers) : content(value, tag)), ...properties(value, tag)];
}

/** Without recursion, so that depth is no matter. */
export function same(actual, expected, { withBuffers = false } = {}) {
  const pairs = [[actual, expected]];
  // One object may stand for one other only, in both directions.
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
    // Prototypes and what else both share is the same object.
    if (a === b) continue;
    const partsOfA = parts(a, withBuffers);
    const partsOfB = parts(b, withBuffers);
    if (partsOfA === undefined || partsOfB === undefined || partsOfA.length !== partsOfB.length) return false;
    partsOfA.forEach((part, index) => pairs.push([part, partsOfB[index]]));
  }
  return true;
}
