// The public interfaces, a file for each part.
export { DELETE, KEEP } from './collection.ts';
export type * from './calls.ts';
export type * from './collection.ts';
export type * from './database.ts';
export type * from './feed.ts';
export type * from './indexes.ts';
export type * from './layout.ts';
export type * from './open.ts';
export type * from './range.ts';
export type * from './sharing.ts';
export type * from './sources.ts';
export type * from './stats.ts';
export type * from './synchronous.ts';
export type * from './transaction.ts';
export type * from './maintenance.ts';
