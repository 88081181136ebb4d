// Replies that wait for the storage: in order, never early, and before a later end of the engine.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReplyQueue } from '../src/engine/reply-queue.ts';

interface Gate {
  readonly promise: Promise<void>;
  open(): void;
  fail(error: Error): void;
}

function gate(): Gate {
  let open = (): void => {};
  let fail: Gate['fail'] = () => {};
  const promise = new Promise<void>((resolve, reject) => {
    open = resolve;
    fail = reject;
  });
  return { promise, open, fail };
}

class Target {
  readonly seen: (number | string)[] = [];

  reply(bytes: Uint8Array): void {
    this.seen.push(bytes[0] as number);
  }

  fail(error: unknown): void {
    this.seen.push((error as Error).message);
  }
}

const message = (number: number): Uint8Array<ArrayBuffer> => new Uint8Array([number]);
const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

test('a reply with nothing to wait for is given at once', () => {
  const target = new Target();
  const queue = new ReplyQueue(target, () => undefined);
  queue.push(message(1));
  assert.deepEqual(target.seen, [1]);
});

test('a reply waits for its own state and for the replies before it', async () => {
  const target = new Target();
  const gates = [gate(), gate(), gate()] as const;
  const waits: (Promise<void> | undefined)[] = [gates[0].promise, gates[1].promise, undefined, gates[2].promise];
  const queue = new ReplyQueue(target, () => waits.shift());
  for (const number of [1, 2, 3, 4]) queue.push(message(number));
  gates[1].open();
  await turn();
  assert.deepEqual(target.seen, []);
  gates[0].open();
  await turn();
  assert.deepEqual(target.seen, [1, 2, 3]);
  gates[2].open();
  await turn();
  queue.push(message(5));
  assert.deepEqual(target.seen, [1, 2, 3, 4, 5]);
});

test('after a failure no reply is given, and the failure is reported once', async () => {
  const target = new Target();
  const [first, second] = [gate(), gate()];
  const waits = [first.promise, second.promise, second.promise];
  const queue = new ReplyQueue(target, () => waits.shift());
  for (const number of [1, 2, 3]) queue.push(message(number));
  second.fail(new Error('full'));
  await turn();
  assert.deepEqual(target.seen, []);
  first.open();
  await turn();
  queue.push(message(4));
  await turn();
  assert.deepEqual(target.seen, [1, 'full']);
});

test('the end of the engine comes after the replies before it', async () => {
  const target = new Target();
  const held = gate();
  const waits = [held.promise];
  const queue = new ReplyQueue(target, () => waits.shift());
  queue.push(message(1));
  queue.end(new Error('stopped'));
  await turn();
  assert.deepEqual(target.seen, []);
  held.open();
  await turn();
  assert.deepEqual(target.seen, [1, 'stopped']);
});
