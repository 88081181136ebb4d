// The engine as text inside the bundle.
import packed from '../build/wasm/inline.js';
import { unpackModule } from './unpack-wasm.ts';

export function inlineModule(): Promise<ArrayBuffer> {
  return unpackModule(packed);
}
