// Values as strings, in the format in which localForage keeps them in localStorage.
const MARKER = '__lfsc__:';
const BLOB_TYPE = /^~~local_forage_type~([^~]+)~/;

const VIEWS: Record<string, new (buffer: ArrayBuffer) => ArrayBufferView> = {
  si08: Int8Array,
  ui08: Uint8Array,
  uic8: Uint8ClampedArray,
  si16: Int16Array,
  ur16: Uint16Array,
  si32: Int32Array,
  ui32: Uint32Array,
  fl32: Float32Array,
  fl64: Float64Array,
};

/** Characters that are made of bytes at once: arguments of a call are limited. */
const SLICE = 0x8000;

function bufferToString(buffer: ArrayBuffer): string {
  const bytes = new Uint8Array(buffer);
  let binary = '';
  for (let at = 0; at < bytes.length; at += SLICE) binary += String.fromCharCode(...bytes.subarray(at, at + SLICE));
  return btoa(binary);
}

function stringToBuffer(text: string): ArrayBuffer {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
}

function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

async function asText(value: unknown): Promise<string> {
  const tag = tagOf(value);
  if (tag === 'ArrayBuffer') return `${MARKER}arbf${bufferToString(value as ArrayBuffer)}`;
  if (ArrayBuffer.isView(value)) {
    const type = Object.keys(VIEWS).find((name) => VIEWS[name]?.name === tag);
    if (type === undefined) throw new Error('Failed to get type for BinaryArray');
    const { buffer, byteOffset, byteLength } = value;
    return `${MARKER}${type}${bufferToString(buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer)}`;
  }
  if (tag === 'Blob') {
    const blob = value as Blob;
    return `${MARKER}blob~~local_forage_type~${blob.type}~${bufferToString(await blob.arrayBuffer())}`;
  }
  return JSON.stringify(value);
}

function deserialize(text: string): unknown {
  if (!text.startsWith(MARKER)) return JSON.parse(text) as unknown;
  const type = text.slice(MARKER.length, MARKER.length + 4);
  const rest = text.slice(MARKER.length + 4);
  if (type === 'blob') {
    // Old versions stored no type; an empty one is two tildes.
    const [start = '', blobType = ''] = BLOB_TYPE.exec(rest) ?? /^~~local_forage_type~~/.exec(rest) ?? [];
    return new Blob([stringToBuffer(rest.slice(start.length))], { type: blobType });
  }
  if (type === 'arbf') return stringToBuffer(rest);
  const View = VIEWS[type];
  if (View === undefined) throw new Error(`Unkown type: ${type}`);
  return new View(stringToBuffer(rest));
}

/** What `getSerializer` resolves to. */
export const serializer = {
  serialize(value: unknown, callback: (text: string | null, error?: unknown) => void): void {
    asText(value).then(
      (text) => callback(text),
      (error: unknown) => callback(null, error),
    );
  },
  deserialize,
  stringToBuffer,
  bufferToString,
};
