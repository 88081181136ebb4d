// What the browser allows a store whose engine is in a worker, whatever it does.
import { Meter } from '../meter.ts';
import type { Figure } from '../meter.ts';
import { removeEntries } from '../peers/opfs.ts';
import { sizes } from './stage.ts';

const BYTES = 200;

export async function limits(scale: number): Promise<Figure[]> {
  const { gets, puts } = sizes(scale);
  const meter = new Meter();
  const name = 'bench-limits';
  await removeEntries((entry) => entry === name);
  const worker = new Worker(new URL('./limits-worker.ts', import.meta.url), { type: 'module' });
  const ask = <T>(message: unknown, transfer: Transferable[] = []): Promise<T> =>
    new Promise((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<T>) => {
        resolve(data);
      };
      worker.onerror = ({ message: reason }) => {
        reject(new Error(reason));
      };
      worker.postMessage(message, transfer);
    });
  const trips = async (count: number, first: number): Promise<void> => {
    let bytes = new Uint8Array(BYTES);
    bytes[0] = first;
    for (let done = 0; done < count; done++) bytes = await ask(bytes, [bytes.buffer]);
  };
  try {
    await ask(name);
    await trips(200, 0);
    await meter.figure(`${BYTES} bytes to a worker and back, one by one`, '/s', () =>
      meter.rate(gets, () => trips(gets, 0)),
    );
    await meter.figure(
      `${BYTES} bytes written and flushed in a worker`,
      '/s',
      async () => puts / ((await ask<number>(puts)) / 1000),
    );
    await meter.figure(`${BYTES} bytes to a worker, written and back, one by one`, '/s', () =>
      meter.rate(puts, () => trips(puts, 2)),
    );
    await meter.figure(`${BYTES} bytes to a worker, written, flushed and back, one by one`, '/s', () =>
      meter.rate(puts, () => trips(puts, 1)),
    );
  } finally {
    worker.terminate();
    await removeEntries((entry) => entry === name);
  }
  return meter.figures;
}
