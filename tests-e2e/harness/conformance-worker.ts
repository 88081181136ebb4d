// The same in a worker, where synchronous access to files is.
import { checkStorage } from './conformance.ts';

onmessage = ({ data }: MessageEvent<'opfs' | 'indexeddb'>) => {
  checkStorage(data).then((outcome) => postMessage(outcome), (error: unknown) => postMessage({ passed: [], failed: [String(error)] }));
};
