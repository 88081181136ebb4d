// Yjs with the provider, as a page bundles them.
import { IndexeddbPersistence, clearDocument, storeState } from '@mangrove-kv/yjs';
import * as Y from 'yjs';

export { IndexeddbPersistence, Y, clearDocument, storeState };
