// The benchmark page: times this database on its current content, and compares stores on the same
// workload.
import type { CityStore } from '../cities.ts';
import { element } from '../dom.ts';
import type { Guard } from '../explore/page.ts';
import type { Page } from '../router.ts';
import { measure, measurementRow } from './measure.ts';
import markup from './page.html?raw';

export class BenchPage implements Page {
  readonly id = 'bench';
  readonly title = 'Bench';
  readonly #open: () => Promise<CityStore>;
  #isMounted = false;

  constructor(open: () => Promise<CityStore>, guard: Guard) {
    this.#open = open;
    element('bench').innerHTML = markup;
    element('measure-button').addEventListener('click', () => void guard(() => this.#measure()));
  }

  async show(): Promise<void> {
    if (this.#isMounted) return;
    this.#isMounted = true;
    try {
      const { mountBench } = await import('mangrove-bench-browser/page');
      mountBench(element('peers'));
    } catch (error) {
      this.#isMounted = false;
      // The other stores are not cached for offline use: they are 20 MB.
      if (navigator.onLine) throw error;
      element('peers').textContent =
        'The other stores are downloaded when they are measured, which requires a connection.';
    }
  }

  async #measure(): Promise<void> {
    const button = element<HTMLButtonElement>('measure-button');
    const table = element<HTMLTableElement>('measure-table');
    const body = table.tBodies[0]!;
    body.replaceChildren();
    element('measure-result').hidden = false;
    table.removeAttribute('data-done');
    button.disabled = true;
    try {
      await measure(await this.#open(), (result) => body.append(measurementRow(result)));
      table.setAttribute('data-done', '');
    } finally {
      button.disabled = false;
    }
  }
}
