// The names of clients, which tell a later leader whether the process of one has ended.
import { crypto } from '../base/platform.ts';
import { isRunning, ownRealm, startOf } from '../storage/os-lock.ts';

let realm: string | undefined;

/** Where the numbers of processes mean the same; '' if that is unknown here. */
function realmName(): string {
  const { host, boot, namespace } = ownRealm();
  realm ??= host === '' ? '' : [host, boot, namespace].join('/').replaceAll(/[^\w-]/g, '_');
  return realm;
}

export function newClientId(): string {
  const unique = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, '0'));
  return [realmName(), process.pid, startOf(process.pid) ?? '', unique.join('')].join('.');
}

/** Whether the process of a client may still run. One that nothing is known of here may. */
export function mayLive(client: string): boolean {
  const [of, pid, started = ''] = client.split('.');
  return of === '' || of !== realmName() || isRunning({ pid: Number(pid), started });
}
