// The compiled engine, fetched and compiled once however many databases are opened.
import { KvError } from './errors.ts';

/** Gives the module; a failure is not kept, so that the next call tries again. */
export function loadOnce(load: () => Promise<WebAssembly.Module>): () => Promise<WebAssembly.Module> {
  let loading: Promise<WebAssembly.Module> | undefined;
  return () => {
    loading ??= load().catch((error: unknown) => {
      loading = undefined;
      throw error;
    });
    return loading;
  };
}

function failed(url: URL, cause: unknown): KvError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  // A policy without 'wasm-unsafe-eval' is the usual cause of a module that arrives and does not compile.
  return cause instanceof WebAssembly.CompileError
    ? new KvError('KV_UNSUPPORTED', `WebAssembly cannot be compiled here: ${reason}`, { cause })
    : new KvError('KV_IO', `${url} cannot be loaded: ${reason}`, { cause, retryable: true });
}

export async function fetchModule(url: URL): Promise<WebAssembly.Module> {
  if (typeof WebAssembly !== 'object') throw new KvError('KV_UNSUPPORTED', 'there is no WebAssembly here');
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`HTTP status ${response.status}`);
    // Only this type, without parameters, may be compiled while it arrives; servers do not always give it.
    const isStreamable = response.headers.get('content-type')?.trim().toLowerCase() === 'application/wasm';
    return isStreamable
      ? await WebAssembly.compileStreaming(response)
      : await WebAssembly.compile(await response.arrayBuffer());
  } catch (error) {
    throw failed(url, error);
  }
}
