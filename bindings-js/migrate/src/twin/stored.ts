// What a twin stores of a value. Most values are stored as they are, so that programs can read them with the default
// codec. `undefined`, which the database cannot store, and values with Blobs or Files are stored in a wrapper.
import { KvError } from 'mangrove-kv';

/** The only property of a wrapper. An object of the program with this property gets a wrapper of its own. */
const MARK = '@mangrove-kv/clone';

/** A Blob or File; its place in the value is an object that the value and this share. */
type StoredFile = readonly [
  place: object,
  part: {
    readonly type: string;
    readonly bytes: ArrayBuffer;
    readonly name?: string;
    readonly lastModified?: number;
  },
];

interface Wrapper {
  readonly [MARK]: readonly [value: unknown, files: readonly StoredFile[]];
}

function tagOf(value: object): string {
  return Object.prototype.toString.call(value);
}

/** By its tag: the class may be of another realm. */
export function isBlob(value: unknown): value is Blob {
  if (typeof value !== 'object' || value === null) return false;
  const tag = tagOf(value);
  return (tag === '[object Blob]' || tag === '[object File]') && typeof (value as Blob).arrayBuffer === 'function';
}

export function isFile(blob: Blob): blob is File {
  return tagOf(blob) === '[object File]';
}

function isWrapped(value: unknown): value is Wrapper {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, MARK);
}

/** Whether structured clone copies it as a plain object. */
function isRecord(value: object): value is Record<string, unknown> {
  return tagOf(value) === '[object Object]';
}

/**
 * Copies the arrays, Maps, Sets and plain objects of a value, and puts what `replace` returns in place of an object.
 * Shared references and cycles stay what they are; other objects are not copied.
 */
export function substitute(value: unknown, replace: (object: object) => unknown): unknown {
  const copies = new Map<object, unknown>();
  const copy = (item: unknown): unknown => {
    if (typeof item !== 'object' || item === null) return item;
    if (copies.has(item)) return copies.get(item);
    const replaced = replace(item);
    if (replaced !== undefined) {
      copies.set(item, replaced);
      return replaced;
    }
    if (item instanceof Map) {
      const map = new Map<unknown, unknown>();
      copies.set(item, map);
      for (const [key, member] of item) map.set(copy(key), copy(member));
      return map;
    }
    if (item instanceof Set) {
      const set = new Set<unknown>();
      copies.set(item, set);
      for (const member of item) set.add(copy(member));
      return set;
    }
    const isArray = Array.isArray(item);
    if (!isArray && !isRecord(item)) {
      copies.set(item, item);
      return item;
    }
    const result: object = isArray ? new Array(item.length) : {};
    copies.set(item, result);
    for (const key of Object.keys(item)) {
      // Not an assignment, which `__proto__` would take for the prototype.
      Object.defineProperty(result, key, {
        value: copy((item as Record<string, unknown>)[key]),
        configurable: true,
        enumerable: true,
        writable: true,
      });
    }
    return result;
  };
  return copy(value);
}

/** Whether there is a Blob or File in the value. */
export function holdsBlob(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const seen = new Set<object>();
  const waiting: object[] = [value];
  const visit = (item: unknown): void => {
    if (typeof item === 'object' && item !== null && !seen.has(item)) waiting.push(item);
  };
  for (let item = waiting.pop(); item !== undefined; item = waiting.pop()) {
    if (isBlob(item)) return true;
    seen.add(item);
    if (item instanceof Map) {
      for (const [key, member] of item) {
        visit(key);
        visit(member);
      }
    } else if (item instanceof Set) {
      item.forEach(visit);
    } else if (Array.isArray(item) || isRecord(item)) {
      Object.values(item).forEach(visit);
    }
  }
  return false;
}

/** What to store of a value without Blobs. */
export function toStored(value: unknown): unknown {
  return value === undefined || isWrapped(value) ? ({ [MARK]: [value, []] } satisfies Wrapper) : value;
}

/** What to store of a value with Blobs, which are read. The value may change after the call. */
export async function toStoredWithBlobs(value: unknown): Promise<unknown> {
  const blobs: [object, Blob][] = [];
  const copy = substitute(value, (object) => {
    if (!isBlob(object)) return undefined;
    const place = {};
    blobs.push([place, object]);
    return place;
  });
  // Binaries and Dates too may change while the Blobs are read. Cloned together, the places stay shared.
  const [cloned, places] = structuredClone([copy, blobs.map(([place]) => place)] as const);
  const files = await Promise.all(
    blobs.map(async ([, blob], index): Promise<StoredFile> => {
      const place = places[index] as object;
      const part = { type: blob.type, bytes: await blob.arrayBuffer() };
      return [place, isFile(blob) ? { ...part, name: blob.name, lastModified: blob.lastModified } : part];
    }),
  );
  return { [MARK]: [cloned, files] } satisfies Wrapper;
}

/** Any value as it is stored. */
export function stored(value: unknown): unknown {
  return holdsBlob(value) ? toStoredWithBlobs(value) : toStored(value);
}

/** The value of which this was stored. */
export function fromStored(value: unknown): unknown {
  if (!isWrapped(value)) return value;
  const [inner, files] = value[MARK];
  if (files.length === 0) return inner;
  const blobs = new Map(
    files.map(([place, { type, bytes, name, lastModified }]) => [
      place,
      name === undefined
        ? new Blob([bytes], { type })
        : new File([bytes], name, { type, ...(lastModified !== undefined && { lastModified }) }),
    ]),
  );
  return substitute(inner, (object) => blobs.get(object));
}

/** Whether the database refused a key or value. */
export function isRefusal(error: unknown): error is KvError {
  return error instanceof KvError && (error.code === 'KV_INVALID_VALUE' || error.code === 'KV_INVALID_KEY');
}
