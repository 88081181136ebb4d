/** Whether both are equal bytes, both null, or both undefined. */
export function isSame(a: Uint8Array | null | undefined, b: Uint8Array | null | undefined): boolean {
  return a === b || (a?.length === b?.length && a?.every((byte, index) => byte === b?.[index]) === true);
}
