/**
 * A value codec for Blobs and Files.
 *
 * @module mangrove-kv/blob
 */
import { KvError } from '../base/errors.ts';
import { ENCODED, MAX_WHOLE_BYTES, decodeHead, encodeHead, headOf, isBlob, toBlob } from '../codec/blob.ts';
import type { Encoded } from '../codec/blob.ts';
import type { ValueCodec } from '../codec/values.ts';

const refusal = (value: unknown): string => `a ${typeof value} cannot be stored with value codec blob`;

/**
 * Value codec for `Blob` and `File`: contents, type and, for files, name and time of the last
 * change.
 *
 * `set` streams a Blob into the database and `get` out of it, in parts of 1 MiB, so neither needs
 * memory for all of it; `getRange`, `getStream` and `setStream` read and write contents. The name
 * and type may take about 4 KiB together.
 *
 * `setMany` and batches store Blobs of up to 256 KiB, many in one commit. A Blob can only be read
 * asynchronously: so `update` and the synchronous API refuse it with KV_INVALID_VALUE, and a
 * collection of Blobs has no indexes. Other reads than `get`, and `watch`, read each value as a whole.
 *
 * ```ts
 * const files = db.collection('files', { value: blob() });
 * await files.set('cat.jpg', input.files[0]);
 * image.src = URL.createObjectURL(await files.get('cat.jpg'));
 * ```
 */
export function blob(): ValueCodec<Blob> {
  return {
    id: 'blob',
    isBlob: true,
    encode(value) {
      const bytes = (value as unknown as Partial<Encoded> | null)?.[ENCODED];
      if (bytes !== undefined) return bytes;
      throw new KvError(
        'KV_INVALID_VALUE',
        isBlob(value) ? 'a Blob cannot be read synchronously; store it with set()' : refusal(value),
      );
    },
    whole(value) {
      if (!isBlob(value)) throw new KvError('KV_INVALID_VALUE', refusal(value));
      const head = encodeHead(headOf(value));
      const { size } = value;
      if (head.length + size > MAX_WHOLE_BYTES) {
        throw new KvError(
          'KV_INVALID_VALUE',
          `a Blob of ${size} bytes is too long for setMany and batches, which take up to ${MAX_WHOLE_BYTES} with name and type; store it with set()`,
        );
      }
      return value.arrayBuffer().then((contents) => {
        const bytes = new Uint8Array(head.length + contents.byteLength);
        bytes.set(head);
        bytes.set(new Uint8Array(contents), head.length);
        return { [ENCODED]: bytes } satisfies Encoded as unknown as Blob;
      });
    },
    decode(bytes) {
      const { head, length } = decodeHead(bytes);
      return toBlob(head, [bytes.slice(length)]);
    },
  };
}
