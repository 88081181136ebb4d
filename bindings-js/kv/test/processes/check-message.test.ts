import { strict as assert } from 'node:assert';
import { describe, test } from 'node:test';
import { checkMessage } from '../../src/processes/check-message.ts';
import { PROTOCOL } from '../../src/tabs/messages.ts';
import type { Message } from '../../src/tabs/messages.ts';

const bytes = Uint8Array.of(1);

interface Field {
  readonly good: readonly unknown[];
  readonly bad: readonly unknown[];
}

const protocol: Field = { good: [PROTOCOL], bad: [PROTOCOL - 1, PROTOCOL + 1, String(PROTOCOL), undefined] };
const number: Field = { good: [0, 1, 2 ** 53 - 1], bad: [-1, 0.5, NaN, 2 ** 53, '1', null, undefined] };
const string: Field = { good: ['', 'a'], bad: [1, null, undefined, {}] };
const boolean: Field = { good: [true, false], bad: [0, 'true', null, undefined] };
const array: Field = { good: [bytes], bad: ['text', [1], {}, null, undefined] };
const missing = ({ good, bad }: Field): Field => ({
  good: [...good, undefined],
  bad: bad.filter((value) => value !== undefined),
});
const hello: Field = {
  good: [undefined, { state: null, readOnly: false }, { state: bytes, readOnly: true }],
  bad: [null, 'hello', {}, { state: null }, { readOnly: true }, { state: 1, readOnly: true }],
};
const cut: Field = {
  good: [undefined, { at: 0, requests: 1 }],
  bad: [null, 1, {}, { at: 0 }, { requests: 1 }, { at: -1, requests: 1 }],
};

type Fields = Readonly<Record<string, Field>>;

const MESSAGES: Readonly<Record<'toLeader' | 'toMember', Partial<Record<Message['type'], Fields>>>> = {
  toLeader: {
    who: { protocol, client: string },
    hello: { protocol, term: number, client: string, visible: boolean },
    request: { term: number, seq: number, message: array, hello },
    visible: { term: number, visible: boolean },
  },
  toMember: {
    lead: { protocol, term: number, client: string, version: number, sealedKey: missing(array) },
    opening: { client: string },
    resign: { term: number, heir: missing(string) },
    ready: { term: number },
    reply: { term: number, seq: number, bytes: array, state: missing(array), cut },
    crashed: { term: number, seq: number, code: string, reason: string },
    state: { term: number, seq: number, state: array },
    wake: { term: number },
  },
};

for (const direction of ['toLeader', 'toMember'] as const) {
  const other = direction === 'toLeader' ? 'toMember' : 'toLeader';
  describe(`a message ${direction} of another process`, () => {
    for (const [type, fields] of Object.entries(MESSAGES[direction])) {
      const right = {
        type,
        ...Object.fromEntries(Object.entries(fields).map(([name, { good }]) => [name, good[0]])),
      };

      test(`${type} is taken with what it may have, and only then`, () => {
        for (const [name, { good, bad }] of Object.entries(fields)) {
          for (const value of good) {
            const message = { ...right, [name]: value };
            assert.equal(checkMessage(direction, message), message);
          }
          for (const value of bad)
            assert.equal(checkMessage(direction, { ...right, [name]: value }), undefined, `${name}: ${String(value)}`);
        }
      });

      test(`${type} is refused in the other direction`, () => {
        assert.equal(checkMessage(other, right), undefined);
      });
    }

    test('is refused if it is none', () => {
      for (const value of [
        undefined,
        null,
        1,
        'who',
        ['who'],
        {},
        { type: 1 },
        { type: 'wanted' },
        { type: 'toString' },
      ])
        assert.equal(checkMessage(direction, value), undefined);
    });
  });
}
