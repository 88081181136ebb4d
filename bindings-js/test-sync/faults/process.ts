// A device that is a process. `fleet.ts` starts it and talks to it.
import process from 'node:process';
import { wsconnect } from '@nats-io/nats-core';
import type { NatsCredentials } from 'mangrove-kv/sync/nats';
import { connectToAny } from './any-version.ts';
import { Replica } from './replica.ts';
import type { ReplicaOptions, Told } from './replica.ts';

/** What the parent asks for, and the answers to what this asks for. */
export type ToProcess =
  | { readonly type: 'call'; readonly id: number; readonly method: string; readonly args: readonly unknown[] }
  | { readonly type: 'credentials'; readonly id: number; readonly credentials: NatsCredentials | undefined };

export type FromProcess =
  | Told
  | { readonly type: 'started' }
  | { readonly type: 'credentials'; readonly id: number }
  | { readonly type: 'returned'; readonly id: number; readonly value: unknown; readonly error: string | undefined };

const { options, isOld, hasAccounts } = JSON.parse(process.argv[2] as string) as { readonly options: ReplicaOptions; readonly isOld: boolean; readonly hasAccounts: boolean };

/** Resolves once the parent has it, even if this is killed right after. */
const send = (message: FromProcess): Promise<void> => new Promise((resolve) => process.send?.(message, () => resolve()));

const asked = new Map<number, (credentials: NatsCredentials | undefined) => void>();
let asks = 0;

async function credentials(): Promise<NatsCredentials> {
  const id = ++asks;
  const answered = new Promise<NatsCredentials | undefined>((resolve) => asked.set(id, resolve));
  await send({ type: 'credentials', id });
  const found = await answered;
  if (found === undefined) throw new Error('the application\'s server does not answer');
  return found;
}

async function call(replica: Replica, id: number, method: string, args: readonly unknown[]): Promise<void> {
  try {
    const value = await (replica[method as keyof Replica] as (...given: unknown[]) => unknown).apply(replica, [...args]);
    await send({ type: 'returned', id, value, error: undefined });
  } catch (error) {
    await send({ type: 'returned', id, value: undefined, error: String(error) });
  }
}

// Without its parent, nobody would end it.
process.on('disconnect', () => process.exit(1));

const started = Replica.start(options, { tell: send, connect: isOld ? connectToAny : wsconnect, ...(hasAccounts ? { credentials } : {}) });
process.on('message', async (message: ToProcess) => {
  if (message.type === 'call') return call(await started, message.id, message.method, message.args);
  asked.get(message.id)?.(message.credentials);
  asked.delete(message.id);
});
await started;
await send({ type: 'started' });
