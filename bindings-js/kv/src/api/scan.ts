// A scan as the verbs describe it, for the asynchronous and the synchronous iterator.
import type { KeyPrefix } from '../codec/keys.ts';
import type { DecodeItem } from '../wire/chunk.ts';
import type { Connection } from '../wire/connection.ts';
import { ScanFlag } from '../wire/opcodes.ts';
import type { RequestWriter } from '../wire/protocol.ts';
import type { Window } from './range.ts';
import type { Call } from './task.ts';

/** What to read. */
export interface Scan<T, K> {
  readonly connection: Connection;
  /** Opens the scan. */
  readonly op: number;
  /** Returns a promise if the engine cannot open the scan yet. */
  readonly ready?: () => Promise<void> | undefined;
  /** The entries to read. The iterator fails with whatever this throws. */
  readonly window: () => Window;
  /** Writes view and collection. */
  readonly writeSource: (writer: RequestWriter) => RequestWriter;
  /** One of `Content`. */
  readonly content: number;
  readonly signal: AbortSignal | undefined;
  readonly decode: DecodeItem<T>;
  /** Decoding runs none of the caller's code. */
  readonly isFast: boolean;
  /** Sent after an empty scan: fails if a mistake in the request explains that. */
  readonly misread: () => Call<void> | undefined;
  readonly encodeSeek: (key: KeyPrefix<K>) => Uint8Array;
}

/** The fields between the scan's id and the limits of the chunk. */
export function writeScan({ writeSource, content }: Pick<Scan<unknown, never>, 'writeSource' | 'content'>, { range, reverse, offset, limit }: Window, writer: RequestWriter, flags: number): void {
  writeSource(writer).range(range).u8((reverse ? ScanFlag.reverse : 0) | content | flags).uv(offset).uv(limit === Infinity ? 0 : limit);
}
