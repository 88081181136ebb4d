// Finds messages, and proves that what was not found is not there.
import { performance } from 'mangrove-kv/internal';
import { logUnavailable } from '@mangrove-kv/replication';
import type { Position } from '@mangrove-kv/replication';
import type { Api } from './api.ts';
import { apiError, toLogError } from './failures.ts';
import { kindOf } from './names.ts';
import type { Names } from './names.ts';
import { Reader } from './reader.ts';
import type { LogMessage } from './reader.ts';

/** Not empty: servers do not pass messages without headers and content on between accounts. */
const CONFIRMATION = new Uint8Array([1]);
/** Milliseconds between two looks at a server that lags behind. */
export const LAG = 50;

export const pause = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

/**
 * Writes a message that only confirms, and returns its position. A server that was cut off from the
 * others may still answer; it cannot take a message.
 */
export async function confirm(api: Api, names: Names): Promise<Position> {
  const what = 'confirming that the log is current';
  try {
    const reply = await api.publish(names.confirm, CONFIRMATION, {});
    if ('error' in reply) throw apiError(reply.error, what);
    return reply.seq;
  } catch (error) {
    throw toLogError(error, what);
  }
}

/** The messages from a position on up to another one, which has to be in the log. */
export async function scan(
  api: Api,
  names: Names,
  first: Position,
  last: Position,
  filter = names.all,
): Promise<LogMessage[]> {
  const reader = await Reader.open(api, names, filter, { at: first });
  try {
    const found: LogMessage[] = [];
    for (let end = performance.now() + api.connection.timeout; ; ) {
      const { messages, isEnd } = await reader.next(256);
      for (const message of messages) {
        if (message.position > last) return found;
        found.push(message);
        if (message.position === last) return found;
      }
      if (!isEnd) continue;
      if (performance.now() > end)
        throw logUnavailable(`the server that was asked for position ${last} of the log lags behind`);
      await pause(LAG);
    }
  } finally {
    reader.close();
  }
}

/** The record at a position, or undefined once it is proved that it is not in the log. */
export async function recordAt(api: Api, names: Names, position: Position): Promise<LogMessage | undefined> {
  const reader = await Reader.open(api, names, names.all, { at: position });
  try {
    const {
      messages: [first],
    } = await reader.next(1);
    if (first?.position === position) return kindOf(first.subject) === 'record' ? first : undefined;
    const confirmed = await confirm(api, names);
    if (position > confirmed) return undefined;
    // Messages arrive in order: one after the position proves that the server would have it.
    const [found] = await scan(api, names, position, confirmed);
    return found?.position === position && kindOf(found.subject) === 'record' ? found : undefined;
  } finally {
    reader.close();
  }
}

/** Up to which position the log is purged, as of now. */
export async function floorOf(api: Api, names: Names): Promise<Position> {
  const confirmed = await confirm(api, names);
  for (let end = performance.now() + api.connection.timeout; ; ) {
    const reader = await Reader.open(api, names, names.extras, 'last per subject');
    try {
      let floor = 0;
      let newest = 0;
      for (;;) {
        const { messages, isEnd } = await reader.next(256);
        for (const message of messages) {
          newest = message.position;
          if (kindOf(message.subject) === 'floor') floor = Math.max(floor, floorIn(message));
        }
        if (isEnd || messages.length === 0) break;
      }
      if (newest >= confirmed) return floor;
    } finally {
      reader.close();
    }
    if (performance.now() > end) throw logUnavailable('the server that was asked lags behind');
    await pause(LAG);
  }
}

export function floorIn(message: LogMessage): Position {
  const floor = Number(new TextDecoder().decode(message.data));
  return Number.isSafeInteger(floor) ? floor : 0;
}
