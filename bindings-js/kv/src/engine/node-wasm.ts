// Loads the WebAssembly module where files can be read, synchronously too.
import * as fs from 'node:fs';
import { pathToFileURL } from 'node:url';
import { KvError } from '../base/errors.ts';
import { toKvError } from '../storage/node-fs.ts';
import type { WasmSource } from '../types/index.ts';
import { classOf, compileBytes, compileBytesSync, createLoader, fetchModule, findOwn, parseUrl } from './wasm.ts';
import type { LoadModule } from './wasm.ts';

export interface NodeLoader {
  readonly load: LoadModule;
  readonly loadSync: (source: WasmSource | undefined) => WebAssembly.Module;
  /** URL of the worker's script. */
  readonly worker: () => URL;
}

function base(): string {
  return pathToFileURL(`${process.cwd()}/`).href;
}

function readBytes(url: URL): Uint8Array {
  try {
    return fs.readFileSync(url);
  } catch (error) {
    throw toKvError(error, `load ${url}`);
  }
}

/**
 * Reads a file synchronously: the system has it in memory but for the first time, and threads of
 * the runtime compile it while this one does something else.
 */
async function readModule(url: URL): Promise<WebAssembly.Module> {
  return url.protocol === 'file:' ? compileBytes(readBytes(url)) : fetchModule(url);
}

function readModuleSync(url: URL): WebAssembly.Module {
  if (url.protocol !== 'file:') throw new KvError('KV_UNSUPPORTED', `openSync cannot fetch ${url}; use open`);
  return compileBytesSync(readBytes(url));
}

type OwnModule = () => WasmSource | Promise<WasmSource>;

function loadSourceSync(source: WasmSource | Promise<WasmSource>): WebAssembly.Module {
  switch (classOf(source)) {
    case 'Promise':
      throw new KvError(
        'KV_UNSUPPORTED',
        'openSync cannot wait for the inlined module with encryption; use open, or give the option wasm',
      );
    case 'WebAssembly.Module':
      return source as WebAssembly.Module;
    case 'Response':
      throw new KvError('KV_UNSUPPORTED', 'openSync cannot wait for a Response; use open');
    case 'String':
    case 'URL':
      return readModuleSync(parseUrl(String(source), base()));
    default:
      return compileBytesSync(source as ArrayBuffer | ArrayBufferView);
  }
}

export function createNodeLoader(ownModule: OwnModule, worker: () => URL): NodeLoader {
  return { ...createModuleLoader(ownModule), worker };
}

export function createModuleLoader(ownModule: OwnModule): Omit<NodeLoader, 'worker'> {
  const byAddress = new Map<string, WebAssembly.Module>();
  const byObject = new WeakMap<object, WebAssembly.Module>();
  let own: WebAssembly.Module | undefined;

  function loadSync(source: WasmSource | undefined): WebAssembly.Module {
    if (source === undefined) return (own ??= loadSourceSync(findOwn(ownModule)));
    if (typeof source === 'string' || classOf(source) === 'URL') {
      const { href } = parseUrl(String(source), base());
      const module = byAddress.get(href) ?? loadSourceSync(href);
      byAddress.set(href, module);
      return module;
    }
    const module = byObject.get(source as object) ?? loadSourceSync(source);
    byObject.set(source as object, module);
    return module;
  }

  return { load: createLoader({ ownModule, base, fromUrl: readModule }), loadSync };
}
