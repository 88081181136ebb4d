// The engine's module as a part of the script.
import packed from '../../build/wasm/packed.js';
import { unpackModule } from '../engine/unpack-node.ts';

export const ownModule = (): Uint8Array => unpackModule(packed);
