// Faults that a test orders in the package's worker: the engine traps, or the worker halts within a commit for somebody to end it there.
import type { FaultOrder, FaultReport } from './messages.ts';

interface Handle {
  write(...args: unknown[]): unknown;
  flush(...args: unknown[]): unknown;
}

/** How long a worker that halts waits for its end: a browser gives a busy one two seconds. */
const HALT_MS = 5000;

let isTrapOrdered = false;
/** An instance is being made: what fails there is another fault. */
let isStarting = false;
let halt: Extract<FaultOrder, { fault: 'halt' }> | undefined;

addEventListener('message', (event: MessageEvent<FaultOrder | Uint8Array | object>) => {
  const { data } = event;
  if (!('fault' in data)) return;
  event.stopImmediatePropagation();
  if (data.fault === 'trap') isTrapOrdered = true;
  else halt = data;
});

// What an import throws past the glue unwinds the engine as a trap does.
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
  const wrapped = Object.entries(imports).map(([module, functions]) =>
    [module, Object.fromEntries(Object.entries(functions).map(([name, call]) => [name, trapping(call)]))]);
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
  for (const end = performance.now() + ms; performance.now() < end;);
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
