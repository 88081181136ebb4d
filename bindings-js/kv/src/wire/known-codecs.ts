// The codecs in use on each connection, by collection name and codec ids. The feed of all
// collections and error messages decode with them.
import { keyCodecs, keyText, toHex } from '../codec/keys.ts';
import type { KeyCodec } from '../codec/keys.ts';
import { valueCodecs } from '../codec/values.ts';
import type { ValueCodec } from '../codec/values.ts';

export interface CodecPair {
  readonly key: KeyCodec<unknown>;
  readonly value: ValueCodec<unknown>;
}

const known = new WeakMap<object, Map<string, CodecPair>>();
const DEFAULT = { key: keyCodecs.any, value: valueCodecs.structured() } as CodecPair;

function id(name: string, { key, value }: { key: { id: string }; value: { id: string } }): string {
  return JSON.stringify([name, key.id, value.id]);
}

export function rememberCodecs<K, V>(connection: object, name: string, key: KeyCodec<K>, value: ValueCodec<V>): void {
  let codecs = known.get(connection);
  if (codecs === undefined) known.set(connection, (codecs = new Map()));
  const pair = { key, value } as unknown as CodecPair;
  codecs.set(id(name, pair), pair);
}

/** The codecs with the ids stored with a collection, if registered or the defaults. */
export function findCodecs(connection: object, name: string, keyId: string, valueId: string): CodecPair | undefined {
  const found = known.get(connection)?.get(id(name, { key: { id: keyId }, value: { id: valueId } }));
  return found ?? (keyId === DEFAULT.key.id && valueId === DEFAULT.value.id ? DEFAULT : undefined);
}

/** Longer keys are cut in error messages. */
const SHOWN_CHARACTERS = 100;

/**
 * A key for an error message: decoded with a registered codec, or as hex if none can. Without a
 * collection's name it is an index key.
 */
export function describeKey(connection: object, name: string | undefined, bytes: Uint8Array): string {
  let text = toHex(bytes);
  const decode = (codec: KeyCodec<unknown>): void => {
    try {
      text = keyText(codec.decode(bytes.slice()));
    } catch {
      // Registered with a codec other than the collection's.
    }
  };
  if (name === undefined) decode(DEFAULT.key);
  for (const [id, { key }] of known.get(connection) ?? []) if ((JSON.parse(id) as string[])[0] === name) decode(key);
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}
