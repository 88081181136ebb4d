// Mangrove with a key: XChaCha20-Poly1305.
import { open as openPlain } from './mangrove.mjs';

const encryption = { key: new Uint8Array(32).fill(7) };

export const open = (directory, options) => openPlain(directory, { ...options, encryption });
