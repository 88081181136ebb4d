// The engine, embedded in the bundle as text.
import packed from '../build/wasm/inline.js';
import { unpackModule } from './unpack-wasm.ts';

export function inlineModule(): Promise<ArrayBuffer> {
  return unpackModule(packed);
}
