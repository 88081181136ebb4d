// Loads the WebAssembly module: fetched and compiled once for all databases.
import { KvError } from '../base/errors.ts';
import type { WasmSource } from '../types/index.ts';

/** Loads the module of a source, or the entry's own if `undefined`. */
export type LoadModule = (source: WasmSource | undefined) => Promise<WebAssembly.Module>;

/** Caches the module that `load` returns. A failure is not cached: the next call retries. */
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

function failed(what: string, cause: unknown): KvError {
  if (cause instanceof KvError) return cause;
  const reason = cause instanceof Error ? cause.message : String(cause);
  // Usually a content security policy lacks 'wasm-unsafe-eval'.
  return cause instanceof WebAssembly.CompileError
    ? new KvError('KV_UNSUPPORTED', `WebAssembly cannot be compiled here: ${reason}`, { cause })
    : new KvError('KV_IO', `${what} cannot be loaded: ${reason}`, { cause, retryable: true });
}

function checkWebAssembly(): void {
  if (typeof WebAssembly !== 'object') throw new KvError('KV_UNSUPPORTED', 'there is no WebAssembly here');
}

async function compileResponse(response: Response): Promise<WebAssembly.Module> {
  checkWebAssembly();
  try {
    if (!response.ok) throw new Error(`HTTP status ${response.status}`);
    // Streaming compilation requires this type without parameters; not all servers send it.
    const isStreamable = response.headers.get('content-type')?.trim().toLowerCase() === 'application/wasm';
    return isStreamable
      ? await WebAssembly.compileStreaming(response)
      : await WebAssembly.compile(await response.arrayBuffer());
  } catch (error) {
    throw failed(response.url || 'the response', error);
  }
}

export async function fetchModule(url: URL): Promise<WebAssembly.Module> {
  checkWebAssembly();
  let response: Response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw failed(String(url), error);
  }
  return compileResponse(response);
}

export async function compileBytes(bytes: ArrayBuffer | ArrayBufferView): Promise<WebAssembly.Module> {
  checkWebAssembly();
  try {
    return await WebAssembly.compile(bytes as BufferSource);
  } catch (error) {
    throw failed('the module', error);
  }
}

export function compileBytesSync(bytes: ArrayBuffer | ArrayBufferView): WebAssembly.Module {
  checkWebAssembly();
  try {
    return new WebAssembly.Module(bytes as BufferSource);
  } catch (error) {
    throw failed('the module', error);
  }
}

/** Name of a value's built-in class; works across realms, unlike `instanceof`. */
export function classOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

export function isWasmSource(value: unknown): value is WasmSource {
  return (
    typeof value === 'string' ||
    ArrayBuffer.isView(value) ||
    ['ArrayBuffer', 'URL', 'Response', 'WebAssembly.Module'].includes(classOf(value))
  );
}

/** What differs between entries. */
export interface ModuleHost {
  /** The entry's own module. */
  readonly ownModule: () => WasmSource | Promise<WasmSource>;
  /** Base of relative URLs. */
  readonly base: () => string | undefined;
  readonly fromUrl: (url: URL) => Promise<WebAssembly.Module>;
}

/**
 * Returns the entry's own module.
 *
 * @throws KvError KV_UNSUPPORTED if a bundler lost it.
 */
export function findOwn<T>(ownModule: () => T): T {
  try {
    return ownModule();
  } catch (cause) {
    // Bundles in formats other than ESM have no import.meta.url.
    const advice = 'the module that comes with the package cannot be found here; give open() the option wasm';
    throw new KvError('KV_UNSUPPORTED', advice, { cause });
  }
}

/** Creates a function that loads each module once, keyed by URL or else by source object. */
export function createLoader({ ownModule, base, fromUrl }: ModuleHost): LoadModule {
  const byAddress = new Map<string, () => Promise<WebAssembly.Module>>();
  const byObject = new WeakMap<object, () => Promise<WebAssembly.Module>>();
  const own = loadOnce(loadOwn);

  /** Begins to load before it returns, unless the source itself has to be waited for. */
  async function loadOwn(): Promise<WebAssembly.Module> {
    const source = findOwn(ownModule);
    return load(source instanceof Promise ? await source : source);
  }

  function load(source: WasmSource): Promise<WebAssembly.Module> {
    if (typeof source === 'string' || classOf(source) === 'URL') return loadAddress(String(source));
    if (classOf(source) === 'WebAssembly.Module') return Promise.resolve(source as WebAssembly.Module);
    let loader = byObject.get(source as object);
    if (loader === undefined) {
      loader = loadOnce(() =>
        classOf(source) === 'Response'
          ? compileResponse(source as Response)
          : compileBytes(source as ArrayBuffer | ArrayBufferView),
      );
      byObject.set(source as object, loader);
    }
    return loader();
  }

  function loadAddress(address: string): Promise<WebAssembly.Module> {
    const url = parseUrl(address, base());
    let loader = byAddress.get(url.href);
    if (loader === undefined) {
      loader = loadOnce(() => fromUrl(url));
      byAddress.set(url.href, loader);
    }
    return loader();
  }

  return async (source) => (source === undefined ? own() : load(source));
}

export function parseUrl(address: string, base: string | undefined): URL {
  try {
    return new URL(address, base);
  } catch (cause) {
    throw new KvError('KV_INVALID_ARGUMENT', `wasm is not a URL: ${address}`, { cause });
  }
}
