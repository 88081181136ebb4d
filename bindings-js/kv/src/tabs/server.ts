// The page, or the thread, behind a worker that takes part in the protocol: what the peer tells it, and
// what it tells the peer.
import { isBytes } from '../codec/bytes.ts';
import { toPlain } from '../base/plain-error.ts';
import type { KvError } from '../base/errors.ts';
import type { Trace } from '../base/trace.ts';
import type { Scope } from '../engine/worker-server.ts';
import { Awake } from '../wire/spin.ts';
import type { WorkerMessage } from '../wire/worker-protocol.ts';
import type { PageEvents } from './environment.ts';
import type { Peer } from './peer.ts';

export interface PageHooks {
  opened(): void;
  /** Everything is closed; `tell` says so. */
  left(error: KvError | undefined, tell: (error: KvError | undefined) => void): void;
}

export function pageEvents(scope: Scope, trace: Trace | undefined, hooks: PageHooks): PageEvents {
  const awake = new Awake();
  const post = (message: WorkerMessage, transfer?: Transferable[]): void => scope.postMessage(message, transfer);
  return {
    trace,
    joined: () => post({ type: 'joined' }),
    opened: () => {
      hooks.opened();
      post({ type: 'opened' });
    },
    reply: (bytes, count, requests) => {
      post(count === 1 ? bytes : { type: 'reply', bytes, count, requests }, [bytes.buffer]);
      awake.stay();
    },
    refuse: (error, count) => post({ type: 'refused', error: toPlain(error), count }),
    wake: () => post({ type: 'wake' }),
    blocked: (reason) => post({ type: 'blocked', reason }),
    backgroundError: (error) => post({ type: 'backgroundError', error: toPlain(error) }),
    failed: (error) => post({ type: 'failed', error: toPlain(error) }),
    left: (error) => hooks.left(error, (failure) => post({ type: 'left', error: failure && toPlain(failure) })),
  };
}

/** Passes what the page sends on to the peer. */
export function listenToPage(scope: Scope, peer: Peer, rekey: (opening: Uint8Array) => void): void {
  const { client } = peer;
  scope.onmessage = ({ data }) => {
    if (isBytes(data)) return client.push(data);
    if (!('type' in data)) return;
    switch (data.type) {
      case 'visible':
        return peer.setVisible(data.isVisible);
      case 'leaving':
        return client.gather();
      case 'hide':
        return peer.hide();
      case 'show':
        return peer.show();
      case 'leave':
        return peer.leave();
      case 'rekey':
        rekey(data.opening);
    }
  };
}
