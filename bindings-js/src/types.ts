// The public interfaces, a file for each part.
export { DELETE, KEEP } from './types/collection.ts';
export type * from './types/collection.ts';
export type * from './types/database.ts';
export type * from './types/feed.ts';
export type * from './types/layout.ts';
export type * from './types/open.ts';
export type * from './types/range.ts';
export type * from './types/schema.ts';
export type * from './types/stats.ts';
export type * from './types/storage.ts';
export type * from './types/sync.ts';
export type * from './types/transaction.ts';
export type * from './types/upkeep.ts';
