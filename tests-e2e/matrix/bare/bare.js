import * as kv from './kv/index.js';
import * as kvInline from './kv/inline.js';

Object.assign(globalThis, { kv, kvInline });
