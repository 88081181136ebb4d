// The maintenance module as a part of the script.
import packed from '../../build/wasm-maintenance/packed.js';
import { unpackModule } from '../engine/unpack-node.ts';

export const ownModule = (): Uint8Array => unpackModule(packed);
