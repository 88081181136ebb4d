// Hybrid logical clocks: milliseconds since 1970 in 48 bits, then a counter in 16.

const COUNTER_BITS = 16n;
/** A record counts as written at most this long after the log received it. */
export const MAX_AHEAD_MS = 60_000;

export const toHlc = (ms: number): bigint => BigInt(Math.max(0, Math.floor(ms))) << COUNTER_BITS;
export const toMs = (hlc: bigint): number => Number(hlc >> COUNTER_BITS);

/** The next time of this device: not before its clock, and after everything it has seen. */
export function tick(last: bigint, nowMs: number): bigint {
  const now = toHlc(nowMs);
  return now > last ? now : last + 1n;
}

/** What a record's time counts as: a device whose clock is ahead gains at most a minute. */
export function clamp(hlc: bigint, logTime: number): bigint {
  const latest = toHlc(logTime + MAX_AHEAD_MS);
  return hlc < latest ? hlc : latest;
}
