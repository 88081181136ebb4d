// Values with Blobs, whose bytes are read after the call.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { close, createStore, get, set } from '@mangrove-kv/idb-keyval';

test('binaries and Dates beside a Blob may change while it is read', async () => {
  const store = createStore('changing', 'kv', { storage: 'memory' });
  const blob = new Blob(['photo']);
  let isRead = (): void => undefined;
  let isBeingRead = (): void => undefined;
  const reading = new Promise<void>((resolve) => {
    isBeingRead = resolve;
  });
  const bytesOf = blob.arrayBuffer.bind(blob);
  blob.arrayBuffer = async () => {
    isBeingRead();
    await new Promise<void>((resolve) => {
      isRead = resolve;
    });
    return bytesOf();
  };
  const [bytes, buffer, date] = [new Uint8Array([1, 2, 3]), new Uint8Array([4]).buffer, new Date(5)];
  const written = set('key', { blob, bytes, buffer, date }, store);
  await reading;
  bytes[0] = 99;
  date.setTime(7);
  structuredClone(buffer, { transfer: [buffer] });
  isRead();
  await written;
  const found = await get('key', store);
  assert.deepEqual(
    [await found.blob.text(), found.bytes, new Uint8Array(found.buffer), found.date],
    ['photo', new Uint8Array([1, 2, 3]), new Uint8Array([4]), new Date(5)],
  );
  await close(store);
});
