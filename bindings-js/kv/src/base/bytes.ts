/** Whether both are equal bytes, both null, or both undefined. */
export function isSame(a: Uint8Array | null | undefined, b: Uint8Array | null | undefined): boolean {
  return a === b || (a?.length === b?.length && a?.every((byte, index) => byte === b?.[index]) === true);
}

/** Whether it is a Uint8Array, of whichever realm: test environments such as Jest and jsdom have one of their own. */
export function isBytes(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array || (ArrayBuffer.isView(value) && (value as Partial<Uint8Array>)[Symbol.toStringTag] === 'Uint8Array');
}
