// Checks the shape of what another process sent: its version may be wrong in spite of its protocol
// number, and what it sends may be garbage.
import { PROTOCOL } from '../tabs/messages.ts';
import type { Message } from '../tabs/messages.ts';

type Check = (value: unknown) => boolean;

const isNumber: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const isString: Check = (value) => typeof value === 'string';
const isBoolean: Check = (value) => typeof value === 'boolean';
const isBytes: Check = (value) => value instanceof Uint8Array;
const isProtocol: Check = (value) => value === PROTOCOL;
const orMissing =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);
const orNull =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);
const isObject =
  (shape: Readonly<Record<string, Check>>): Check =>
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    Object.entries(shape).every(([name, check]) => check((value as Readonly<Record<string, unknown>>)[name]));

/** By direction: what a member sends to the leader, and what the leader sends to members. */
const SHAPES: Readonly<Record<'toLeader' | 'toMember', Partial<Record<Message['type'], Check>>>> = {
  toLeader: {
    who: isObject({ protocol: isProtocol, client: isString }),
    hello: isObject({ protocol: isProtocol, term: isNumber, client: isString, visible: isBoolean }),
    request: isObject({
      term: isNumber,
      seq: isNumber,
      message: isBytes,
      hello: orMissing(isObject({ state: orNull(isBytes), readOnly: isBoolean })),
    }),
    visible: isObject({ term: isNumber, visible: isBoolean }),
  },
  toMember: {
    lead: isObject({
      protocol: isProtocol,
      term: isNumber,
      client: isString,
      version: isNumber,
      sealedKey: orMissing(isBytes),
    }),
    opening: isObject({ client: isString }),
    resign: isObject({ term: isNumber, heir: orMissing(isString) }),
    ready: isObject({ term: isNumber }),
    reply: isObject({
      term: isNumber,
      seq: isNumber,
      bytes: isBytes,
      state: orMissing(isBytes),
      cut: orMissing(isObject({ at: isNumber, requests: isNumber })),
    }),
    crashed: isObject({ term: isNumber, seq: isNumber, code: isString, reason: isString }),
    state: isObject({ term: isNumber, seq: isNumber, state: isBytes }),
    wake: isObject({ term: isNumber }),
  },
};

/** Returns the message if it is one that may go in this direction. */
export function checkMessage(direction: keyof typeof SHAPES, value: unknown): Message | undefined {
  const { type } = (value ?? {}) as { readonly type?: unknown };
  if (typeof type !== 'string' || !Object.hasOwn(SHAPES[direction], type)) return undefined;
  return SHAPES[direction][type as Message['type']]?.(value) === true ? (value as Message) : undefined;
}
