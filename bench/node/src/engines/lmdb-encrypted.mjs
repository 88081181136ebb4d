// LMDB with a key: ChaCha8, without authentication.
import { open as openPlain } from './lmdb.mjs';

export const open = (directory, options) => openPlain(directory, { ...options, encryptionKey: '7'.repeat(32) });
