// Runs the storage tests in a worker, where files can be accessed synchronously.
import { checkStorage } from './conformance.ts';

onmessage = ({ data }: MessageEvent<'opfs' | 'indexeddb'>) => {
  checkStorage(data).then(
    (outcome) => postMessage(outcome),
    (error: unknown) => postMessage({ passed: [], failed: [String(error)] }),
  );
};
