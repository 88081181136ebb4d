// Runs in a thread for a handle with `thread: 'worker'` that shares its database: the thread takes part
// in the protocol, and leads if it is its turn, however busy the handle's own thread is.
import type { KvError } from '../base/errors.ts';
import { EngineHost } from '../engine/engine-host.ts';
import { traceOf } from '../engine/worker-server.ts';
import type { Scope } from '../engine/worker-server.ts';
import { Peer } from '../tabs/peer.ts';
import { listenToPage, pageEvents } from '../tabs/server.ts';
import type { OpenRequest } from '../wire/worker-protocol.ts';
import { newClientId } from './client-id.ts';
import { DATABASE, ProcessEnvironment } from './environment.ts';
import { NodeMachine } from './node-machine.ts';
import { openServed } from './served-engine.ts';

/** Serves the handle from its next message on. Returns false if its database is not shared. */
export function serveThread(request: OpenRequest, scope: Scope): boolean {
  const { tabs, module, name, lockTimeoutMs } = request;
  let { engine } = request;
  if (tabs === undefined) return false;
  const machine = new NodeMachine(name, request.takeOver ?? false);
  const client = newClientId();
  let wasOpened = false;
  const page = pageEvents(scope, traceOf(request, scope), {
    opened: () => {
      wasOpened = true;
    },
    left: (error, tell) => void environment.end().then(() => tell(error)),
  });
  const environment = new ProcessEnvironment(machine, client, async (signal) => {
    signal.throwIfAborted();
    return openServed(module, machine.directory, engine, wasOpened, {
      trace: page.trace,
      wake: (sessions) => peer.wakeClients(sessions),
      backgroundError: (error) => page.backgroundError(error),
      fail: (error: KvError) => peer.engineFailed(error),
    });
  });
  const peer = new Peer(
    environment,
    {
      database: DATABASE,
      title: machine.directory,
      id: client,
      isAgain: tabs.isAgain,
      readOnly: engine.readOnly,
      exclusive: engine.exclusive,
      deadlineMs: lockTimeoutMs,
      refusal: (sealedKey) => EngineHost.refusal(module, engine, sealedKey),
    },
    page,
  );
  environment.onleader = (leader) => scope.postMessage({ type: 'leader', leader });
  peer.start();
  listenToPage(scope, peer, (opening) => {
    engine = { ...engine, opening };
  });
  const { onmessage } = scope;
  scope.onmessage = (event) => {
    const { data } = event;
    if (!('type' in data) || data.type !== 'clients') return onmessage?.(event);
    void environment.clients().then((clients) => scope.postMessage({ type: 'clients', clients }));
  };
  return true;
}
