// Starts the package's worker with fault injection and records which client of the protocol it is.
import { names } from '../../bindings-js/kv/src/tabs/messages.ts';

const clients = new WeakMap<Worker, string>();

export function startFaultyWorker(): Worker {
  const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module', name: 'mangrove-kv' });
  const post = worker.postMessage.bind(worker);
  worker.postMessage = (message: unknown, transfer?: Transferable[] | StructuredSerializeOptions) => {
    const { tabs } = message as { tabs?: { client: string } };
    if (tabs !== undefined) clients.set(worker, tabs.client);
    post(message, transfer as Transferable[]);
  };
  return worker;
}

/** Client name of a worker; undefined until it was asked to open a database. */
export function clientOf(worker: Worker | undefined): string | undefined {
  return worker === undefined ? undefined : clients.get(worker);
}

/**
 * Names of the clients whose locks the leader holds: its own, and briefly those of clients that are
 * gone.
 */
export async function leadingClients(name: string): Promise<string[]> {
  const database = `opfs:${name}`;
  const { held = [] } = await navigator.locks.query();
  const leading = held.find((lock) => lock.name === names.leader(database));
  const start = names.client(database, '');
  if (leading === undefined) return [];
  return held.flatMap((lock) =>
    lock.clientId === leading.clientId && lock.name?.startsWith(start) ? [lock.name.slice(start.length)] : [],
  );
}
