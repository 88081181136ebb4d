// The engine as text inside the bundle.
import packed from '../build/wasm/inline.js';
import { KvError } from './errors.ts';

/** Neither `eval` nor a `data:` URL, which a content security policy may forbid. */
export async function inlineModule(): Promise<ArrayBuffer> {
  try {
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    return await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
  } catch (cause) {
    throw new KvError('KV_UNSUPPORTED', 'the inlined module cannot be unpacked here; give open() the option wasm', { cause });
  }
}
