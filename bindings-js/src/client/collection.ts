// Writes of one collection.
import { KvError } from '../errors.ts';
import type { Bounds, Collection, Durability, WriteOptions } from '../types.ts';
import { attempt } from './async.ts';
import { ChangeList } from './changes.ts';
import { encodeKey, encodeValue } from './codecs.ts';
import { Op } from './protocol.ts';
import type { ReplyReader, RequestWriter } from './protocol.ts';
import { refuseWindow, toWindow } from './range.ts';
import { CollectionReader, NEWEST } from './reader.ts';
import type { Target } from './reader.ts';

const DURABILITIES: readonly Durability[] = ['strict', 'relaxed', 'none'];

/** How the engine is told when a write counts as done. */
export function durabilityCode(durability: Durability): number {
  const code = DURABILITIES.indexOf(durability);
  if (code < 0) throw new KvError('KV_INVALID_ARGUMENT', 'durability has to be "strict", "relaxed" or "none"');
  return code;
}

export class KvCollection<K, V> extends CollectionReader<K, V> implements Collection<K, V> {
  readonly #durability: Durability;

  constructor(target: Target<K, V>, durability: Durability) {
    super(target, NEWEST);
    this.#durability = durability;
  }

  get name(): string {
    return this.target.name;
  }

  set(key: K, value: V, options?: WriteOptions): Promise<void> {
    return attempt(() => {
      const keyBytes = encodeKey(this.target.key, key);
      const valueBytes = encodeValue(this.target.value, value);
      return this.write(Op.set, options, (writer) => {
        writer.uv(this.target.index).bytes(keyBytes).bytes(valueBytes);
      }, (reader) => {
        reader.uv();
      });
    });
  }

  setMany(entries: Iterable<readonly [K, V]>, options?: WriteOptions): Promise<void> {
    return attempt(() => {
      const changes = new ChangeList();
      for (const [key, value] of entries) changes.set(this.target, key, value);
      return this.writeBatch(changes, options).then(() => undefined);
    });
  }

  delete(key: K, options?: WriteOptions): Promise<boolean> {
    return attempt(() => {
      const keyBytes = encodeKey(this.target.key, key);
      return this.write(Op.delete, options, (writer) => writer.uv(this.target.index).bytes(keyBytes), (reader) => {
        reader.uv();
        return reader.u8() !== 0;
      });
    });
  }

  deleteMany(keys: Iterable<K>, options?: WriteOptions): Promise<number> {
    return attempt(() => {
      const changes = new ChangeList();
      for (const key of keys) changes.delete(this.target, key);
      return this.writeBatch(changes, options).then(({ existed }) => existed);
    });
  }

  clear(range?: Bounds<K>, options?: WriteOptions): Promise<void> {
    return attempt(() => {
      refuseWindow(range);
      const window = toWindow(this.target.key, range);
      return this.write(Op.clear, options, (writer) => writer.uv(this.target.index).range(window.range), (reader) => {
        reader.uv();
        reader.uv();
      });
    });
  }

  /** Sends a request that begins with the durability. */
  protected write<T>(
    op: number,
    options: WriteOptions | undefined,
    write: (writer: RequestWriter) => unknown,
    read: (reader: ReplyReader) => T,
  ): Promise<T> {
    const durability = durabilityCode(options?.durability ?? this.#durability);
    return this.target.connection.request((writer) => write(writer.u8(op).u8(durability)), read);
  }

  protected writeBatch(
    changes: ChangeList,
    options: WriteOptions | undefined,
  ): Promise<{ version: number; existed: number }> {
    return this.write(Op.batch, options, (writer) => writer.uv(changes.length).raw(changes.bytes), (reader) => {
      const version = reader.uv();
      return { version, existed: reader.uv() };
    });
  }
}
