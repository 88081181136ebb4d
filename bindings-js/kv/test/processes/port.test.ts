// What one end has sent before it closed arrives, whatever the other end does meanwhile.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { connectedPorts, SocketPort } from '../../src/processes/port.ts';
import type { Port } from '../../src/processes/port.ts';
import { Awake } from '../../src/wire/spin.ts';
import { withPath } from '../support/kit.ts';
import { until } from './member.ts';

async function withSockets(use: (one: Socket, other: Socket) => Promise<void>): Promise<void> {
  await withPath(async (path) => {
    const server = createServer();
    server.listen(process.platform === 'win32' ? `\\\\.\\pipe\\${path}` : join(path, '..', 'socket'));
    await once(server, 'listening');
    const accepted = once(server, 'connection') as Promise<[Socket]>;
    const one = connect(server.address() as string);
    await once(one, 'connect');
    const [other] = await accepted;
    try {
      await use(one, other);
    } finally {
      one.destroy();
      other.destroy();
      server.close();
    }
  });
}

function listen(port: Port): { readonly heard: unknown[]; isClosed: boolean } {
  const state = { heard: [] as unknown[], isClosed: false };
  port.onmessage = (message) => void state.heard.push(message);
  port.onclose = () => {
    state.isClosed = true;
  };
  return state;
}

test('what was sent before the end arrives, although the other end goes on sending', () =>
  withSockets(async (one, other) => {
    const [ours, theirs] = [new SocketPort(one, new Awake()), new SocketPort(other, undefined)];
    for (const port of [ours, theirs]) port.trust();
    const state = listen(theirs);
    other.pause();
    for (let n = 0; n < 3; n++) ours.send({ n, bytes: new Uint8Array(1000) });
    const closed = ours.close();
    // As long as the other end does not read, it may not know.
    await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, 100))]);
    theirs.send({ late: true });
    await new Promise((resolve) => setTimeout(resolve, 50));
    other.resume();
    await until('the end', () => state.isClosed);
    assert.deepEqual(
      state.heard.map((message) => (message as { readonly n: number }).n),
      [0, 1, 2],
    );
    await closed;
  }));

test('who never reads does not keep the other end from closing', () =>
  withSockets(async (one, other) => {
    const ours = new SocketPort(one, new Awake());
    other.pause();
    ours.send({ bytes: new Uint8Array(4 << 20) });
    await ours.close();
    assert.ok(one.destroyed);
    // Nothing is sent any more.
    ours.send({});
  }));

test('within a thread, too, and what is sent is a copy', async () => {
  const [ours, theirs] = connectedPorts();
  const state = listen(theirs);
  const bytes = new Uint8Array([1]);
  ours.send({ bytes });
  bytes[0] = 2;
  const closed = ours.close();
  theirs.send({ late: true });
  await closed;
  await until('the end', () => state.isClosed);
  assert.deepEqual(state.heard, [{ bytes: new Uint8Array([1]) }]);
});
