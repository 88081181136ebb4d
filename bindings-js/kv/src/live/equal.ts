// Ranges are made anew for each drawing.
import { isSame } from '../codec/bytes.ts';

/** Whether two ranges or keys say the same. */
export function isEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (a instanceof Date) return Object.is(a.getTime(), (b as Date).getTime());
  if (a instanceof ArrayBuffer || ArrayBuffer.isView(a))
    return isSame(bytesOf(a as ArrayBuffer), bytesOf(b as ArrayBuffer));
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every(
      (name) =>
        Object.hasOwn(b, name) && isEqual((a as Record<string, unknown>)[name], (b as Record<string, unknown>)[name]),
    )
  );
}

function bytesOf(binary: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(binary)
    ? new Uint8Array(binary.buffer, binary.byteOffset, binary.byteLength)
    : new Uint8Array(binary);
}
