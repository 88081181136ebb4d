// The page with two devices that are kept in step. The code of replication is loaded when it is shown.
import { element } from '../dom.ts';
import type { Page } from '../router.ts';
import markup from './page.html?raw';
import { host, port } from './server.json';

export class ReplicationPage implements Page {
  readonly id = 'replication';
  readonly title = 'Replication';
  readonly #server: string;
  readonly #log: string;
  #isMounted = false;

  constructor(parameters: URLSearchParams) {
    this.#server = parameters.get('server') ?? `ws://${host}:${port}`;
    this.#log = parameters.get('log') ?? 'replication-demo';
  }

  async show(): Promise<void> {
    if (this.#isMounted) return;
    this.#isMounted = true;
    try {
      const { mountDevices } = await import('./devices.ts');
      element('replication').innerHTML = markup;
      element('replication-server').textContent = this.#server;
      await mountDevices({ server: this.#server, name: this.#log });
    } catch (error) {
      this.#isMounted = false;
      throw error;
    }
  }
}
