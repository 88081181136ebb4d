// Decodes commits as the engine sends them.
import { keyCodecs } from '../../codec/keys.ts';
import { valueCodecs } from '../../codec/values.ts';
import type { Change, Commit } from '../../types/feed.ts';
import { decodeKey, decodeValue } from '../../wire/codecs.ts';
import { findCodecs } from '../../wire/known-codecs.ts';
import type { CodecPair } from '../../wire/known-codecs.ts';
import type { Connection } from '../../wire/connection.ts';
import { ReplyReader } from '../../wire/protocol.ts';
import { toBounds } from './bounds.ts';
import type { ByteBound } from './bounds.ts';
import { CLEAR, CODECS, DELETE, DROP, EXPIRE, RENAME, SET } from './format.ts';

interface Decoder extends CodecPair {
  /** Fields of a change that say how it was decoded. */
  readonly mark: { readonly raw?: true };
}

/** Keys and values as they are stored. */
export const RAW = { key: keyCodecs.bytes, value: valueCodecs.bytes, mark: { raw: true } } as unknown as Decoder;

/** The codecs of collections at the current position in the feed. */
export interface Decoders {
  /** Of commits that write this collection, only what they set there is decoded. */
  readonly only?: string | undefined;
  of(collection: string): Decoder;
  /** Records the codec ids that a collection has from here on; undefined if it was dropped. */
  note(collection: string, ids: readonly [key: string, value: string] | undefined): void;
  rename(from: string, to: string): void;
}

/**
 * The same for all changes: those of one collection, whose codecs the engine checks against the
 * stored ones, or all of them as bytes.
 */
export class FixedDecoders implements Decoders {
  readonly #decoder: Decoder;
  readonly only: string | undefined;

  constructor(codecs: CodecPair, only?: string) {
    this.#decoder = { mark: {}, ...codecs };
    this.only = only;
  }

  of(): Decoder {
    return this.#decoder;
  }

  note(): void {}

  rename(): void {}
}

/** For all collections, by the codec ids that are stored with them. */
export class StoredDecoders implements Decoders {
  readonly #connection: Connection;
  readonly #ids = new Map<string, readonly [string, string]>();

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  of(collection: string): Decoder {
    const ids = this.#ids.get(collection);
    const codecs = ids && findCodecs(this.#connection, collection, ...ids);
    return codecs === undefined ? RAW : { ...codecs, mark: {} };
  }

  note(collection: string, ids: readonly [string, string] | undefined): void {
    if (ids === undefined) this.#ids.delete(collection);
    else this.#ids.set(collection, ids);
  }

  rename(from: string, to: string): void {
    const ids = this.#ids.get(from);
    this.#ids.delete(from);
    // A feed that began before a rename knows the collection by its present name only.
    if (ids !== undefined) this.note(to, ids);
  }
}

/** The commits of one reply, decoded one at a time. */
export class CommitReader {
  readonly #reader: ReplyReader;
  readonly #decoders: Decoders;
  readonly #names: string[] = [];

  constructor(bytes: Uint8Array, decoders: Decoders) {
    this.#reader = new ReplyReader(bytes);
    this.#decoders = decoders;
  }

  get isAtEnd(): boolean {
    return this.#reader.isAtEnd;
  }

  next(): Commit {
    const version = this.#reader.uv();
    const count = this.#reader.uv();
    const { only } = this.#decoders;
    let changes = only && this.#setsOnly(only, count);
    if (!changes) {
      changes = [];
      for (let left = count; left > 0; left--) {
        const change = this.#change();
        if (change !== undefined) changes.push(change);
      }
    }
    return { version, changes };
  }

  /** What a commit of sets and deletes sets in one collection; undefined, with nothing read, if that is nothing. */
  #setsOnly(collection: string, count: number): Change[] | undefined {
    const reader = this.#reader;
    const start = reader.at;
    const known = this.#names.length;
    const changes: Change[] = [];
    for (let left = count; left > 0; ) {
      const type = reader.u8();
      if (type > DELETE) break;
      const name = this.#name();
      if (type === SET && name === collection) changes.push(this.#rest(type, name) as Change);
      else {
        reader.bytes();
        if (type === SET) {
          reader.bytes();
          reader.uv();
        }
      }
      if (--left === 0 && changes.length > 0) return changes;
    }
    reader.at = start;
    this.#names.length = known;
    return undefined;
  }

  #change(): Change | undefined {
    return this.#rest(this.#reader.u8(), this.#name());
  }

  #rest(type: number, collection: string): Change | undefined {
    const reader = this.#reader;
    switch (type) {
      case SET: {
        const { key, value, mark } = this.#decoders.of(collection);
        const change = {
          type: 'set',
          collection,
          key: decodeKey(key, reader.bytes()),
          value: decodeValue(value, reader.bytes()),
          ...mark,
        } as const;
        const expiresAt = reader.uv();
        return expiresAt === 0 ? change : { ...change, expiresAt };
      }
      case DELETE: {
        const { key, mark } = this.#decoders.of(collection);
        return { type: 'delete', collection, key: decodeKey(key, reader.bytes()), ...mark };
      }
      case EXPIRE: {
        const { key, mark } = this.#decoders.of(collection);
        return { type: 'delete', collection, key: decodeKey(key, reader.bytes()), expired: true, ...mark };
      }
      case CLEAR: {
        const { key, mark } = this.#decoders.of(collection);
        const [lower, upper] = [this.#bound(), this.#bound()];
        return { type: 'clear', collection, ...toBounds(key, lower, upper), ...mark };
      }
      case CODECS:
        this.#decoders.note(collection, [reader.str(), reader.str()]);
        return undefined;
      case DROP:
        this.#decoders.note(collection, undefined);
        return { type: 'drop', collection };
      case RENAME: {
        const to = reader.str();
        this.#decoders.rename(collection, to);
        return { type: 'rename', collection, to };
      }
      default:
        return undefined;
    }
  }

  #name(): string {
    const index = this.#reader.uv();
    return (this.#names[index] ??= this.#reader.str());
  }

  #bound(): ByteBound {
    const kind = this.#reader.u8();
    return kind === 0 ? undefined : { bytes: this.#reader.bytes(), isExclusive: kind === 2 };
  }
}
