// Index keys as IndexedDB computes them: a key path evaluated on a value, and the result converted
// to a key. What the standard calls invalid or a failure is `undefined`: not in the index.
import type { Key } from 'mangrove-kv';

function isBytes(value: object): value is ArrayBuffer | ArrayBufferView {
  return ArrayBuffer.isView(value) || Object.prototype.toString.call(value) === '[object ArrayBuffer]';
}

function bytesOf(value: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(value)
    ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
    : new Uint8Array(value);
}

/** Converts a value to a key. `within` are the arrays around it. */
export function toKey(value: unknown, within: readonly unknown[] = []): Key | undefined {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return Number.isNaN(value) ? undefined : value;
  if (typeof value !== 'object' || value === null) return undefined;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? undefined : value;
  if (isBytes(value)) return bytesOf(value);
  if (!Array.isArray(value) || within.includes(value)) return undefined;
  const keys: Key[] = [];
  // Not `map`, which skips holes.
  for (const item of value as unknown[]) {
    const key = toKey(item, [...within, value]);
    if (key === undefined) return undefined;
    keys.push(key);
  }
  return keys;
}

/** Follows a key path, of own properties only. */
function follow(value: unknown, names: readonly string[]): unknown {
  let at = value;
  for (const name of names) {
    if (typeof at === 'string' && name === 'length') at = at.length;
    else if (typeof at === 'object' && at !== null && Object.hasOwn(at, name))
      at = (at as Record<string, unknown>)[name];
    else return undefined;
  }
  return at;
}

/** Whether IndexedDB takes `path` as a key path. */
export function isKeyPath(path: unknown): path is string {
  if (typeof path !== 'string') return false;
  return (
    path === '' || path.split('.').every((name) => /^[$_\p{ID_Start}][$\u200c\u200d\p{ID_Continue}]*$/u.test(name))
  );
}

function namesOf(path: string): string[] {
  return path === '' ? [] : path.split('.');
}

/** The function of an index on one key path, or on several, which make a compound key. */
export function keyOf(path: string | readonly string[]): (value: unknown) => Key | undefined {
  if (typeof path === 'string') {
    const names = namesOf(path);
    return (value) => toKey(follow(value, names));
  }
  const paths = path.map(namesOf);
  return (value) => toKey(paths.map((names) => follow(value, names)));
}

/** The function of a multi-entry index: of an array each member that is a key, otherwise the key itself. */
export function keysOf(path: string): (value: unknown) => readonly Key[] {
  const names = namesOf(path);
  return (value) => {
    const found = follow(value, names);
    const members = Array.isArray(found)
      ? [...(found as unknown[])].map((member) => toKey(member, [found]))
      : [toKey(found)];
    return members.filter((key) => key !== undefined);
  };
}
