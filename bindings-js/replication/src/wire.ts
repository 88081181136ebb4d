// Between records as the database has them and as the log has them: compression, seal, blobs.
import { KvError } from 'mangrove-kv';
import { TextEncoder, crypto } from 'mangrove-kv/internal';
import { concat, toHexBytes } from './bytes.ts';
import type { CryptoKeyType } from 'mangrove-kv/internal';
import type { ReadRecord } from './apply.ts';
import { COMPRESSED, MAX_RECORD_BYTES, SEALED, crcOf, decodeRecord, encodeHeader, encodeRecord } from './record.ts';
import type { RecordHeader } from './record.ts';
import type { LoggedRecord, SnapshotStore } from './remote-log.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** Seals what leaves the device, so that the servers see ciphertext and cannot forge it. */
export interface Seal {
  /** An AES-GCM key with the usages "encrypt" and "decrypt", one for each database. */
  readonly key: CryptoKeyType;
  /** Name of the database, the same on all devices: what is sealed for one is of no use in another. */
  readonly database: string;
}

const IV_BYTES = 12;
/** Shorter bodies are not compressed. */
const COMPRESS_BYTES = 512;

const utf8 = new TextEncoder();

async function pipe(
  bytes: Uint8Array,
  through: { readonly readable: ReadableStream<Uint8Array>; readonly writable: WritableStream<BufferSource> },
  maxBytes?: number,
): Promise<Bytes> {
  const writer = through.writable.getWriter();
  // Errors reach the reader too.
  writer.write(bytes as Bytes).catch(() => undefined);
  writer.close().catch(() => undefined);
  return collect(through.readable, maxBytes);
}

/** All bytes of a stream. Throws KV_CORRUPT as soon as there are more than `maxBytes`. */
export async function collect(stream: ReadableStream<Uint8Array>, maxBytes = Infinity): Promise<Bytes> {
  const parts: Uint8Array[] = [];
  const reader = stream.getReader();
  let length = 0;
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    parts.push(step.value);
    length += step.value.length;
    if (length <= maxBytes) continue;
    reader.cancel().catch(() => undefined);
    throw new KvError('KV_CORRUPT', `more than ${maxBytes} bytes`);
  }
  return concat(parts);
}

export function toStream(bytes: Uint8Array): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      if (bytes.length > 0) controller.enqueue(bytes);
      controller.close();
    },
  });
}

async function deflate(bytes: Uint8Array): Promise<Bytes | undefined> {
  if (bytes.length < COMPRESS_BYTES || typeof CompressionStream !== 'function') return undefined;
  const short = await pipe(bytes, new CompressionStream('deflate-raw'));
  return short.length < bytes.length ? short : undefined;
}

export class Wire {
  readonly #seal: Seal | undefined;

  constructor(seal: Seal | undefined) {
    this.#seal = seal;
  }

  /** A record as it goes into the log. */
  async pack(flags: number, number: Omit<RecordHeader, 'flags'>, body: Uint8Array): Promise<Bytes> {
    const short = await deflate(body);
    const header = {
      flags: flags | (short === undefined ? 0 : COMPRESSED) | (this.#seal === undefined ? 0 : SEALED),
      ...number,
    };
    return encodeRecord(header, await this.seal(short ?? body, encodeHeader(header)));
  }

  /** A record from the log, without blobs. */
  async unpack({ position, serverTime, sender, record }: LoggedRecord): Promise<ReadRecord> {
    const { header, body } = decodeRecord(record);
    const { flags, device, seq, back } = header;
    if (((flags & SEALED) !== 0) !== (this.#seal !== undefined)) {
      throw new KvError(
        'KV_CORRUPT',
        `the record at position ${position} is ${flags & SEALED ? 'sealed, and there is no key' : 'not sealed, although records of this database are'}`,
      );
    }
    const opened = await this.open(body, encodeHeader(header));
    const plain =
      flags & COMPRESSED
        ? await pipe(opened, new DecompressionStream('deflate-raw'), MAX_RECORD_BYTES).catch((cause: unknown) => {
            throw new KvError('KV_CORRUPT', `the record at position ${position} cannot be decompressed`, { cause });
          })
        : opened.slice();
    return {
      raw: record,
      position,
      serverTime,
      crc: crcOf(record),
      flags: flags & ~(COMPRESSED | SEALED),
      device,
      seq,
      back,
      isSealed: this.#seal !== undefined,
      sender,
      body: plain,
    };
  }

  /** `about` is authenticated, too. Without a key the bytes stay as they are. */
  async seal(bytes: Uint8Array, about: Uint8Array): Promise<Uint8Array> {
    if (this.#seal === undefined) return bytes;
    const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
    const sealed = await crypto.subtle.encrypt(this.#parameters(iv, about), this.#seal.key, bytes as Bytes);
    return concat([iv, new Uint8Array(sealed)]);
  }

  async open(bytes: Uint8Array, about: Uint8Array): Promise<Uint8Array> {
    if (this.#seal === undefined) return bytes;
    try {
      const iv = bytes.slice(0, IV_BYTES);
      return new Uint8Array(
        await crypto.subtle.decrypt(this.#parameters(iv, about), this.#seal.key, bytes.slice(IV_BYTES)),
      );
    } catch (cause) {
      throw new KvError(
        'KV_CORRUPT',
        'what was sealed cannot be opened with this key: it is forged, or sealed with another one',
        { cause },
      );
    }
  }

  #parameters(iv: Bytes, about: Uint8Array): AesGcmParams {
    return {
      name: 'AES-GCM',
      iv,
      additionalData: concat([utf8.encode(`${(this.#seal as Seal).database}|`), about]) as Bytes,
    };
  }

  /** A large value as the object store has it. */
  async blob(value: Uint8Array): Promise<{ readonly hash: Bytes; readonly stored: Uint8Array }> {
    const stored = await this.seal(value, utf8.encode('blob'));
    return { hash: new Uint8Array(await crypto.subtle.digest('SHA-256', stored as Bytes)), stored };
  }

  /** Fetches a large value and checks that it is the one. */
  async fetchBlob(store: SnapshotStore | undefined, hash: Uint8Array, signal?: AbortSignal): Promise<Uint8Array> {
    const key = blobKey(toHexBytes(hash));
    if (store === undefined)
      throw new KvError(
        'KV_LOG_REFUSED',
        'a record refers to a large value in the object store: pass the option `snapshots`',
      );
    const stream = await store.get(key, signal);
    if (stream === undefined)
      throw new KvError('KV_NOT_FOUND', `the object store has no ${key}, to which a record refers`);
    const stored = await collect(stream);
    const { length } = stored;
    if (toHexBytes(new Uint8Array(await crypto.subtle.digest('SHA-256', stored))) !== toHexBytes(hash)) {
      throw new KvError('KV_CORRUPT', `${key} of ${length} bytes in the object store is not what its name says`);
    }
    return this.open(stored, utf8.encode('blob'));
  }
}

export const blobKey = (hash: string): string => `blob/${hash}`;
