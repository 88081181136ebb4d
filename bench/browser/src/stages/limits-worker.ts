// The least that a store in a worker can do: answer, or write a little, flush and answer.
/** TypeScript has it among the types of workers only. */
interface SyncFile {
  write(bytes: Uint8Array, options: { at: number }): number;
  flush(): void;
}

let file: SyncFile | undefined;
let at = 0;

const BYTES = new Uint8Array(200);

function write(): void {
  at += file?.write(BYTES, { at }) ?? 0;
}

function flush(): void {
  write();
  file?.flush();
}

async function open(name: string): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const handle = (await root.getFileHandle(name, { create: true })) as FileSystemFileHandle & {
    createSyncAccessHandle(): Promise<SyncFile>;
  };
  file = await handle.createSyncAccessHandle();
  postMessage(0);
}

addEventListener('message', ({ data }: MessageEvent<string | number | Uint8Array<ArrayBuffer>>) => {
  if (typeof data === 'string') void open(data);
  else if (typeof data === 'number') {
    const start = performance.now();
    for (let done = 0; done < data; done++) flush();
    postMessage(performance.now() - start);
  } else {
    // The first byte tells what to do.
    if (data[0] === 1) flush();
    else if (data[0] === 2) write();
    postMessage(data, { transfer: [data.buffer] });
  }
});
