// The port of a worker thread keeps the process alive while a reply is due, and no longer.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { NodeWorkerPort } from '../src/engine/node-worker-port.ts';

/** Answers each message; before that it reports a failure in the background. */
const SCRIPT = `
const { parentPort } = require('node:worker_threads');
parentPort.on('message', (data) => {
  parentPort.postMessage({ type: 'backgroundError', error: { code: 'KV_IO', message: 'a purge failed', retryable: false } });
  parentPort.postMessage({ type: 'wake' });
  parentPort.postMessage(data);
});
`;

class CountedWorker extends Worker {
  readonly calls: string[] = [];

  override ref(): this {
    this.calls.push('ref');
    return super.ref() ?? this;
  }

  override unref(): this {
    this.calls.push('unref');
    return super.unref() ?? this;
  }
}

test('only replies end the wait for one', async () => {
  const worker = new CountedWorker(SCRIPT, { eval: true });
  const port = new NodeWorkerPort(worker, () => undefined);
  try {
    for (let round = 0; round < 3; round++) {
      const heard: string[] = [];
      worker.calls.length = 0;
      await new Promise<void>((resolve) => {
        port.onmessage = ({ data }) => {
          heard.push(data instanceof Uint8Array ? 'reply' : data.type);
          if (data instanceof Uint8Array) queueMicrotask(resolve);
          else assert.deepEqual(worker.calls, ['ref']);
        };
        port.postMessage(Uint8Array.of(round));
      });
      assert.deepEqual(heard, ['backgroundError', 'wake', 'reply']);
      assert.deepEqual(worker.calls, ['ref', 'unref']);
    }
  } finally {
    await port.terminate();
  }
});
