export const MANIFESTS: ReadonlyMap<string, { readonly name: string; readonly version: string }>;
export function pack(
  directory: string,
  names?: readonly string[],
): Map<string, { readonly tarball: string; readonly unpackedSize: number }>;
