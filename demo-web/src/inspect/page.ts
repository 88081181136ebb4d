// The page that shows the database's internals, with the package's inspector.
import type { CityStore } from '../cities.ts';
import { element } from '../dom.ts';
import type { Page } from '../router.ts';
import { say } from '../shell/toast.ts';

export class InspectPage implements Page {
  readonly id = 'inspect';
  readonly title = 'Inspect';
  readonly #open: () => Promise<CityStore>;
  #isMounted = false;

  constructor(open: () => Promise<CityStore>) {
    this.#open = open;
    element('inspect').innerHTML =
      '<h1 class="page-title" id="inspect-title">Inspect</h1><div id="inspector" data-testid="inspector"></div>';
  }

  async show(): Promise<void> {
    const [{ database }, { mountInspector }] = await Promise.all([this.#open(), import('@mangrove-kv/inspector')]);
    if (this.#isMounted) return;
    this.#isMounted = true;
    mountInspector(element('inspector'), database, {
      onRestored: (name) => say(`${name} was restored; ?db=${name} opens it`),
    });
  }
}
