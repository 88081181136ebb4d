// A device that is a process. `fleet.ts` starts it and talks to it.
import process from 'node:process';
import { wsconnect } from '@nats-io/nats-core';
import type { NatsCredentials } from '@mangrove-kv/replication-nats';
import { connectToAny } from './any-version.ts';
import { Replica } from './replica.ts';
import type { ReplicaOptions, Told } from './replica.ts';

/** What a device asks its parent for. */
export interface Answers {
  readonly credentials: NatsCredentials | undefined;
  readonly counted: number;
}

/** What the parent asks for, and its answers. */
export type ToProcess =
  | { readonly type: 'call'; readonly id: number; readonly method: string; readonly args: readonly unknown[] }
  | { readonly type: 'answer'; readonly id: number; readonly value: Answers[keyof Answers] };

export type FromProcess =
  | Told
  | { readonly type: 'started' }
  | { readonly type: 'ask'; readonly id: number; readonly what: keyof Answers }
  | { readonly type: 'returned'; readonly id: number; readonly value: unknown; readonly error: string | undefined };

const { options, isOld, hasAccounts } = JSON.parse(process.argv[2] as string) as {
  readonly options: ReplicaOptions;
  readonly isOld: boolean;
  readonly hasAccounts: boolean;
};

/** Resolves once the parent has it, even if this is killed right after. */
const send = (message: FromProcess): Promise<void> =>
  new Promise((resolve) => process.send?.(message, () => resolve()));

const asked = new Map<number, (value: never) => void>();
let asks = 0;

async function ask<W extends keyof Answers>(what: W): Promise<Answers[W]> {
  const id = ++asks;
  const answered = new Promise<Answers[W]>((resolve) => asked.set(id, resolve));
  await send({ type: 'ask', id, what });
  return answered;
}

async function credentials(): Promise<NatsCredentials> {
  const found = await ask('credentials');
  if (found === undefined) throw new Error("the application's server does not answer");
  return found;
}

async function call(replica: Replica, id: number, method: string, args: readonly unknown[]): Promise<void> {
  try {
    const value = await (replica[method as keyof Replica] as (...given: unknown[]) => unknown).apply(replica, [
      ...args,
    ]);
    await send({ type: 'returned', id, value, error: undefined });
  } catch (error) {
    await send({ type: 'returned', id, value: undefined, error: String(error) });
  }
}

// Without its parent, nobody would end it.
process.on('disconnect', () => process.exit(1));

const started = Replica.start(options, {
  tell: send,
  counted: () => ask('counted'),
  connect: isOld ? connectToAny : wsconnect,
  ...(hasAccounts ? { credentials } : {}),
});
process.on('message', async (message: ToProcess) => {
  if (message.type === 'call') return call(await started, message.id, message.method, message.args);
  asked.get(message.id)?.(message.value as never);
  asked.delete(message.id);
});
await started;
await send({ type: 'started' });
