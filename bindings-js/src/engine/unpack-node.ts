// A module as packed text in a script, unpacked synchronously.
import { Buffer } from 'node:buffer';
import { gunzipSync } from 'node:zlib';

export function unpackModule(packed: string): Uint8Array {
  return gunzipSync(Buffer.from(packed, 'base64'));
}
