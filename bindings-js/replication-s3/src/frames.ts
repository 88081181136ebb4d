// Objects in which each flipped bit is found, and each cut. An object is frames:
//
//     kind u8 · length u32 · CRC-32C u32 · content
//
// The first one has the format's version (u8) and the object's name; the last one says how many
// there are between them (u32). Each checksum goes on from the one before: a frame is good only in
// its place, and in its object.
import { KvError } from 'mangrove-kv';
import { concat, crc32c } from '@mangrove-kv/replication/internal';
import { logRefused } from '@mangrove-kv/replication';

const VERSION = 1;
const FIRST = 1;
const CONTENT = 2;
const END = 3;
const HEAD = 9;
/** Of a frame's head, what its checksum is of. */
const CHECKED = 5;

const utf8 = new TextEncoder();
const text = new TextDecoder();

function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

export function encodeFrames(name: string, contents: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  let crc = 0;
  const frame = (kind: number, content: Uint8Array): Uint8Array[] => {
    const head = concat([Uint8Array.of(kind), u32(content.length)]);
    crc = crc32c(content, crc32c(head, crc));
    return [head, u32(crc), content];
  };
  return concat([
    ...frame(FIRST, concat([Uint8Array.of(VERSION), utf8.encode(name)])),
    ...contents.flatMap((content) => frame(CONTENT, content)),
    ...frame(END, u32(contents.length)),
  ]);
}

/** The contents, as views, each as soon as it is checked. Errors name the object by `key`, that in the bucket. */
export function* decodeFrames(name: string, bytes: Uint8Array, key = name): Generator<Uint8Array> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let [at, crc, count] = [0, 0, -1];
  const damaged = (what: string): KvError =>
    new KvError('KV_CORRUPT', `${key} is damaged at byte ${at}: ${what}; put a good copy of it in its place`);
  for (let kind = 0; kind !== END; count++) {
    if (at + HEAD > bytes.length) throw damaged('it is cut off');
    const end = at + HEAD + view.getUint32(at + 1);
    if (end > bytes.length) throw damaged('it is cut off, or a length is wrong');
    const content = bytes.subarray(at + HEAD, end);
    crc = crc32c(content, crc32c(bytes.subarray(at, at + CHECKED), crc));
    if (crc !== view.getUint32(at + CHECKED)) throw damaged(`the checksum of frame ${count + 1} is wrong`);
    kind = bytes[at] as number;
    if ((count === -1) !== (kind === FIRST)) throw damaged('its frames are not in order');
    if (kind === FIRST) {
      if (content[0] !== VERSION)
        throw logRefused(`${key} has version ${content[0]}, which this driver does not know: update mangrove-kv`);
      const written = text.decode(content.subarray(1));
      if (written !== name) throw damaged(`it is ${written}, under another name`);
    } else if (kind === CONTENT) {
      yield content;
    } else if (content.length !== 4 || view.getUint32(at + HEAD) !== count || end !== bytes.length) {
      throw damaged('its end is not where it should be');
    }
    at = end;
  }
}
