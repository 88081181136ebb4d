// Operations that simulated pages request. An operation takes 8 bytes and an outcome is one number,
// so both can be concatenated and split.

export const kinds = {
  /** A write; its outcome is its version. */
  append: 0,
  /**
   * A write whose outcome depends on how often it was executed: that count times `VERSIONS`, plus
   * its version.
   */
  increment: 1,
  /** Outcome: the version read. */
  read: 2,
  /** Outcome: the handle times `VERSIONS`, plus the version. */
  openSnapshot: 3,
  /** Outcome: the version of the snapshot, or `LOST`, or `UNKNOWN`. */
  readSnapshot: 4,
  closeSnapshot: 5,
  /**
   * Starts a follower: the client is woken from then on. Outcome: the version it starts after.
   */
  follow: 6,
  /** Reads the commits. Outcome: the version reached. */
  poll: 7,
  /** Crashes the engine. */
  poison: 8,
} as const;

export const OPERATION_BYTES = 8;

export type Kind = (typeof kinds)[keyof typeof kinds];

/** Larger than any version. */
export const VERSIONS = 1_000_000;
export const LOST = -1;
export const UNKNOWN = -2;

export interface Operation {
  readonly kind: Kind;
  /** Unique. */
  readonly id: number;
  /** Handle of a snapshot. */
  readonly handle: number;
}

export function isWrite({ kind }: Operation): boolean {
  return kind === kinds.append || kind === kinds.increment;
}

export function encode(operations: readonly Operation[]): Uint8Array<ArrayBuffer> {
  const words = new Uint32Array(2 * operations.length);
  operations.forEach(({ kind, id, handle }, i) => {
    words[2 * i] = kind | (handle << 8);
    words[2 * i + 1] = id;
  });
  return new Uint8Array(words.buffer);
}

export function decode(bytes: Uint8Array): Operation[] {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const operations: Operation[] = [];
  for (let i = 0; i < words.length; i += 2) {
    operations.push({ kind: (words[i]! & 0xff) as Kind, handle: words[i]! >>> 8, id: words[i + 1]! });
  }
  return operations;
}

export function encodeOutcomes(outcomes: readonly number[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Float64Array.from(outcomes).buffer);
}

export function decodeOutcomes(bytes: Uint8Array): number[] {
  return [...new Float64Array(bytes.buffer, bytes.byteOffset, bytes.length / 8)];
}
