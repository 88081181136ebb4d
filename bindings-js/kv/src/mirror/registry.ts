// Which databases have something mirrored. Live queries look here, and load nothing of the rest.
import type { Connection } from '../wire/connection.ts';
import type { MirrorHub } from './hub.ts';

export const hubs = new WeakMap<Connection, MirrorHub>();
