/**
 * For the packages of this project, which are released together with this one: exempt from semantic versioning.
 *
 * @module mangrove-kv/internal
 */
import * as platform from '../base/platform.ts';

export { abortable, attempt, onAbort, turn } from '../base/async.ts';
export { isCollection, misnamed, nearest } from '../base/names.ts';
export type { Names } from '../base/names.ts';
export { fromPlain } from '../base/plain-error.ts';
export type { PlainError } from '../base/plain-error.ts';
export { isSnapshotLost, isSuperseded } from '../base/superseded.ts';
export { untilWhole } from '../base/superseded.ts';
export { tracerOf } from '../base/trace.ts';
export type { TraceDetail } from '../base/trace.ts';
export { keyText, toHex } from '../codec/keys.ts';
export { encodeBound, prefixRange } from '../codec/keys.ts';
export { LOADING, copyOf, initialOf, isSame, keeping, queryOf, showing, windowOf } from '../live/live-query.ts';
export type { Asked, Earlier, InitialEntries, KeepPrevious, LiveIndexed, NamedIndexRange } from '../live/live-query.ts';
export { lockByName } from '../storage/web-lock.ts';
export type { CryptoKeyType } from '../types/sources.ts';
export type { ReplicationChangesOptions, ReplicationCommits } from '../types/feed.ts';

// By their names: programs that do not have the DOM's types lack what these consist of.
export const AbortController: typeof globalThis.AbortController = platform.AbortController;
export const Event: typeof globalThis.Event = platform.Event;
export const EventTarget: typeof globalThis.EventTarget = platform.EventTarget;
export const ReadableStream: typeof globalThis.ReadableStream = platform.ReadableStream;
export const TextDecoder: typeof globalThis.TextDecoder = platform.TextDecoder;
export const TextEncoder: typeof globalThis.TextEncoder = platform.TextEncoder;
export const crypto: typeof globalThis.crypto = platform.crypto;
export const performance: typeof globalThis.performance = platform.performance;
