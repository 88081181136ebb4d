// Whether two values are the same to a program that got both by structured clone. Independent of the codec, so it finds
// what the codec loses.
import { isBlob, isFile } from './stored.ts';

function bytesOf(value: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(value)
    ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
    : new Uint8Array(value);
}

function areSameBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, index) => byte === other[index]);
}

type Pairs = (readonly [unknown, unknown])[];

/** The parts of two objects that have to be the same, or `undefined` if the objects themselves differ. */
function partsOf(one: object, other: object, tag: string): Pairs | undefined {
  if (Array.isArray(one) !== Array.isArray(other)) return undefined;
  if (ArrayBuffer.isView(one) || tag === '[object ArrayBuffer]') {
    return areSameBytes(bytesOf(one as ArrayBuffer), bytesOf(other as ArrayBuffer)) ? [] : undefined;
  }
  switch (tag) {
    case '[object Date]':
    case '[object Number]':
    case '[object String]':
    case '[object Boolean]':
    case '[object BigInt]':
      return [[one.valueOf(), other.valueOf()]];
    case '[object RegExp]':
      return [[String(one), String(other)]];
    case '[object Error]': {
      const [error, copy] = [one as Error, other as Error];
      return [
        [error.name, copy.name],
        [error.message, copy.message],
        [error.cause, copy.cause],
      ];
    }
    case '[object Map]':
    case '[object Set]': {
      const [members, copies] = [[...(one as Set<unknown>)], [...(other as Set<unknown>)]];
      if (members.length !== copies.length) return undefined;
      return members.map((member, index) => [member, copies[index]]);
    }
    default: {
      const [keys, copies] = [Object.keys(one), Object.keys(other)];
      if (keys.length !== copies.length || keys.some((key, index) => key !== copies[index])) return undefined;
      const parts: Pairs = keys.map((key) => [
        (one as Record<string, unknown>)[key],
        (other as Record<string, unknown>)[key],
      ]);
      return Array.isArray(one) ? [[one.length, (other as unknown[]).length], ...parts] : parts;
    }
  }
}

async function areSameBlobs(one: Blob, other: Blob): Promise<boolean> {
  if (one.size !== other.size || one.type !== other.type) return false;
  if (isFile(one) && isFile(other) && (one.name !== other.name || one.lastModified !== other.lastModified))
    return false;
  return areSameBytes(new Uint8Array(await one.arrayBuffer()), new Uint8Array(await other.arrayBuffer()));
}

/** Compares everything that structured clone keeps, the contents of Blobs included. */
export async function isSameValue(one: unknown, other: unknown): Promise<boolean> {
  const waiting: Pairs = [[one, other]];
  const partners = new Map<object, object>();
  for (let pair = waiting.pop(); pair !== undefined; pair = waiting.pop()) {
    const [left, right] = pair;
    if (typeof left !== 'object' || left === null || typeof right !== 'object' || right === null) {
      if (!Object.is(left, right)) return false;
      continue;
    }
    if (partners.has(left)) {
      if (partners.get(left) !== right) return false;
      continue;
    }
    partners.set(left, right);
    const tag = Object.prototype.toString.call(left);
    if (tag !== Object.prototype.toString.call(right)) return false;
    if (isBlob(left) && isBlob(right)) {
      if (!(await areSameBlobs(left, right))) return false;
      continue;
    }
    const parts = partsOf(left, right, tag);
    if (parts === undefined) return false;
    for (const part of parts) waiting.push(part);
  }
  return true;
}
