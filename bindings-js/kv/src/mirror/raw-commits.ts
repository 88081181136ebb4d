// Commits as the engine sends them, of which mirrors decode only what they hold.
import { CLEAR, CODECS, DELETE, DROP, EXPIRE, RENAME, SET } from '../api/feed/format.ts';
import { ReplyReader } from '../wire/protocol.ts';
import { spanOf } from './names.ts';
import type { Span } from './sorted-entries.ts';

export type RawChange =
  | { readonly type: 'set'; readonly key: Uint8Array; readonly value: Uint8Array; readonly expiresAt: number }
  | { readonly type: 'delete'; readonly key: Uint8Array }
  /** The keys of a span were deleted, or the collection with all of them. */
  | { readonly type: 'clear'; readonly keys: Span }
  | { readonly type: 'rename' };

export interface RawCommit {
  readonly version: number;
  readonly changes: readonly RawChange[];
}

const ALL: Span = { lower: '', upper: undefined };

/** Reads the commits of one reply. */
export function* rawCommits(bytes: Uint8Array): Generator<RawCommit> {
  const reader = new ReplyReader(bytes);
  const names: string[] = [];
  while (!reader.isAtEnd) {
    const version = reader.uv();
    const changes: RawChange[] = [];
    for (let left = reader.uv(); left > 0; left--) {
      const type = reader.u8();
      const name = reader.uv();
      names[name] ??= reader.str();
      const change = readChange(type, reader);
      if (change !== undefined) changes.push(change);
    }
    yield { version, changes };
  }
}

function readChange(type: number, reader: ReplyReader): RawChange | undefined {
  switch (type) {
    case SET:
      return { type: 'set', key: reader.bytes(), value: reader.bytes(), expiresAt: reader.uv() };
    case DELETE:
    case EXPIRE:
      return { type: 'delete', key: reader.bytes() };
    case CLEAR: {
      const [lower, upper] = [readBound(reader), readBound(reader)];
      return {
        type: 'clear',
        keys: spanOf({
          lower: lower?.bytes,
          lowerExclusive: lower?.isExclusive === true,
          upper: upper?.bytes,
          upperExclusive: upper?.isExclusive === true,
        }),
      };
    }
    case DROP:
      return { type: 'clear', keys: ALL };
    case RENAME:
      reader.str();
      return { type: 'rename' };
    case CODECS:
      reader.str();
      reader.str();
      return undefined;
    default:
      return undefined;
  }
}

function readBound(reader: ReplyReader): { readonly bytes: Uint8Array; readonly isExclusive: boolean } | undefined {
  const kind = reader.u8();
  return kind === 0 ? undefined : { bytes: reader.bytes(), isExclusive: kind === 2 };
}
