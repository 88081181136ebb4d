// Unpacks a module that is inlined in a script as gzip and base64, synchronously.
import { Buffer } from 'node:buffer';
import { gunzipSync } from 'node:zlib';

export function unpackModule(packed: string): Uint8Array {
  return gunzipSync(Buffer.from(packed, 'base64'));
}
