// Unpacks a module that is inlined in a script as gzip and base64.
import { KvError } from '../base/errors.ts';

/** Avoids `eval` and `data:` URLs, which a content security policy may forbid. */
export async function unpackModule(packed: string): Promise<ArrayBuffer> {
  try {
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    return await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
  } catch (cause) {
    throw new KvError('KV_UNSUPPORTED', 'the inlined module cannot be unpacked here; give the option wasm', { cause });
  }
}
