// Fault injection in the package's worker. On a test's order the engine traps, or the worker halts
// within a commit so that the test can end it there.
import type { FaultOrder, FaultReport } from './messages.ts';

interface Handle {
  write(...args: unknown[]): unknown;
  flush(...args: unknown[]): unknown;
}

/** How long a halted worker waits to be ended: a browser gives a busy worker two seconds. */
const HALT_MS = 5000;

let isTrapOrdered = false;
/** True during instantiation, where a trap would be a different fault. */
let isStarting = false;
let halt: Extract<FaultOrder, { fault: 'halt' }> | undefined;

addEventListener('message', (event: MessageEvent<FaultOrder | Uint8Array | object>) => {
  const { data } = event;
  if (!('fault' in data)) return;
  event.stopImmediatePropagation();
  if (data.fault === 'trap') isTrapOrdered = true;
  else halt = data;
});

// An exception thrown by an import unwinds the engine past the glue code, as a trap does.
function withTrap(imports: WebAssembly.Imports): WebAssembly.Imports {
  const trapping = (call: WebAssembly.ImportValue): WebAssembly.ImportValue => {
    if (typeof call !== 'function') return call;
    const original = call as (...args: unknown[]) => unknown;
    return (...args: unknown[]) => {
      if (isTrapOrdered && !isStarting) {
        isTrapOrdered = false;
        throw new WebAssembly.RuntimeError('a trap that a test ordered');
      }
      return original(...args);
    };
  };
  const wrapped = Object.entries(imports).map(([module, functions]) => [
    module,
    Object.fromEntries(Object.entries(functions).map(([name, call]) => [name, trapping(call)])),
  ]);
  return Object.fromEntries(wrapped) as WebAssembly.Imports;
}

WebAssembly.Instance = new Proxy(WebAssembly.Instance, {
  construct(Instance, [module, imports]: [WebAssembly.Module, WebAssembly.Imports]) {
    isStarting = true;
    try {
      return new Instance(module, withTrap(imports));
    } finally {
      isStarting = false;
    }
  },
});

function haltIf(at: 'write' | 'flush', isAfter: boolean): void {
  if (halt?.at !== at || halt.isAfter !== isAfter) return;
  const { ms = HALT_MS } = halt;
  halt = undefined;
  (postMessage as (message: FaultReport) => void)({ fault: 'halted' });
  for (const end = performance.now() + ms; performance.now() < end; );
}

const { FileSystemSyncAccessHandle } = globalThis as unknown as { FileSystemSyncAccessHandle: { prototype: Handle } };
const { prototype } = FileSystemSyncAccessHandle;
for (const at of ['write', 'flush'] as const) {
  const original = prototype[at];
  prototype[at] = function (...args) {
    haltIf(at, false);
    const result = original.apply(this, args);
    haltIf(at, true);
    return result;
  };
}
