// The transport of a handle with `thread: 'worker'` that shares its database: its thread takes part in the
// protocol as a browser's worker does, and says who leads.
import { SharedTransport } from '../tabs/shared-transport.ts';
import type { ClientInfo, LeaderInfo } from '../types/sharing.ts';
import type { WorkerMessage } from '../wire/worker-protocol.ts';

export class ThreadTransport extends SharedTransport {
  leader: LeaderInfo | undefined;
  readonly #asking: ((clients: readonly ClientInfo[]) => void)[] = [];

  clients(): Promise<readonly ClientInfo[]> {
    return new Promise((resolve) => {
      this.#asking.push(resolve);
      this.say({ type: 'clients' });
    });
  }

  protected override hear(event: { readonly data: WorkerMessage }): void {
    const { data } = event;
    if ('type' in data && data.type === 'leader') {
      this.leader = data.leader;
      this.events?.leader(data.leader);
    } else if ('type' in data && data.type === 'clients') {
      this.#asking.shift()?.(data.clients);
    } else {
      super.hear(event);
    }
  }

  protected override end(): void {
    super.end();
    for (const answer of this.#asking.splice(0)) answer([]);
  }
}
