// A tab of a device of replication. `tabs.ts` opens it and talks to it.
import { wsconnect } from '@nats-io/nats-core';
import type { NatsCredentials } from '@mangrove-kv/replication-nats';
import { connectToAny } from '../../bindings-js/replication/test-servers/faults/any-version.ts';
import { Replica } from '../../bindings-js/replication/test-servers/faults/replica.ts';
import type { ReplicaOptions, Told } from '../../bindings-js/replication/test-servers/faults/replica.ts';

declare global {
  interface Window {
    replica: Replica;
    startReplica(options: ReplicaOptions, isOld: boolean, hasAccounts: boolean): Promise<void>;
    tellHarness(device: string, told: Told): Promise<void>;
    countedSoFar(): Promise<number>;
    credentialsOf(device: string): Promise<NatsCredentials | undefined>;
  }
}

window.startReplica = async (options, isOld, hasAccounts) => {
  window.replica = await Replica.start(options, {
    tell: (told) => window.tellHarness(options.name, told),
    counted: () => window.countedSoFar(),
    connect: isOld ? connectToAny : wsconnect,
    ...(hasAccounts && {
      credentials: async () => {
        const found = await window.credentialsOf(options.name);
        if (found === undefined) throw new Error("the application's server does not answer");
        return found;
      },
    }),
  });
};
document.title = 'ready';
