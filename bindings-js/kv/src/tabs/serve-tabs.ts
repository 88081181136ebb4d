// Runs in a dedicated worker whose page shares its database with other tabs.
import type { OpenRequest } from '../wire/worker-protocol.ts';
import { EngineHost } from '../engine/engine-host.ts';
import { KvError } from '../base/errors.ts';
import { placeOf } from '../base/names.ts';
import { lazyOf, traceOf } from '../engine/worker-server.ts';
import type { Scope, WorkerStorage } from '../engine/worker-server.ts';
import { BrowserEnvironment, isSupported } from './browser.ts';
import type { LeaderEngine } from './environment.ts';
import { names } from './messages.ts';
import { listenToPage, pageEvents } from './server.ts';
import { Peer } from './peer.ts';

function evicted(name: string): KvError {
  return new KvError('KV_EVICTED', `the files of ${name} were removed while it was open; open it again to start over`);
}

/**
 * Serves the page from its next message on. Returns false if the database is not shared or the
 * browser cannot share it.
 */
export function serveTabs(
  request: OpenRequest,
  openStorage: (request: OpenRequest, signal: AbortSignal) => Promise<WorkerStorage>,
  scope: Scope,
): boolean {
  const { tabs, storage, name, bucket, lockTimeoutMs } = request;
  let { engine } = request;
  if (tabs === undefined || !isSupported()) return false;
  const database = placeOf(storage, name, bucket);
  let wasOpened = false;
  /** The storage that this worker opened last. */
  let storageOf: WorkerStorage | undefined;
  /** Set if the browser or the user removed the files while they were open. */
  let lost: KvError | undefined;

  const page = pageEvents(scope, traceOf(request, scope), {
    opened: () => {
      wasOpened = true;
    },
    // The page may reopen or delete the database at once, so the files must be free by then.
    left: (error, tell) => void Promise.resolve(storageOf?.closing).then(() => tell(lost ?? error)),
  });

  const open = async (signal: AbortSignal): Promise<LeaderEngine> => {
    // After this page was served, a missing database was removed and must not be created again.
    // `readOnly` restricts this page's session, not the engine, which serves other tabs too.
    const create = engine.create && !engine.readOnly && !wasOpened;
    const options = { ...engine, create, exclusive: engine.exclusive && !wasOpened, readOnly: false };
    const opened = await openStorage({ ...request, engine: options }, signal).catch((error: unknown) => {
      if (wasOpened && error instanceof KvError && error.code === 'KV_NOT_FOUND') throw evicted(name);
      throw error;
    });
    storageOf = opened;
    opened.onLost = (error) => {
      lost = error;
      peer.end(error);
    };
    try {
      signal.throwIfAborted();
      const host = EngineHost.open(request.module, opened, options, {
        onDisposed: () => void opened.close?.(),
        lazy: lazyOf(request),
        trace: page.trace,
      });
      host.background = {
        wake: (sessions) => peer.wakeClients(sessions),
        backgroundError: (error) => page.backgroundError(error),
        fail: (error) => peer.engineFailed(error),
      };
      host.beginInheritance();
      await host.ready;
      return host;
    } catch (error) {
      await opened.close?.();
      throw error;
    }
  };

  const environment = new BrowserEnvironment(names.all(database), open, (error) => page.failed(error));
  const peer = new Peer(
    environment,
    {
      database,
      title: database,
      id: tabs.client,
      isAgain: tabs.isAgain,
      readOnly: engine.readOnly,
      exclusive: engine.exclusive,
      deadlineMs: lockTimeoutMs,
      refusal: (sealedKey) => EngineHost.refusal(request.module, engine, sealedKey),
    },
    page,
  );
  peer.setVisible(tabs.isVisible);
  peer.start();

  listenToPage(scope, peer, (opening) => {
    engine = { ...engine, opening };
  });
  return true;
}
