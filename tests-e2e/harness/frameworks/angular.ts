// Its components are compiled in the page, as no build does it: import Angular's compiler before.
import { injectLiveQuery } from '@mangrove-kv/angular';
import { ApplicationRef, Component, createComponent, provideZonelessChangeDetection, signal } from '@angular/core';
import { createApplication } from '@angular/platform-browser';
import { textOf } from './main.ts';
import type { Asked, Mount } from './main.ts';

class ListComponent {
  readonly #asked = signal<Asked | undefined>(undefined);
  readonly #live = injectLiveQuery(
    () => this.#asked()?.source,
    () => this.#asked()?.range ?? ({} as never),
  );

  set asked(asked: Asked) {
    this.#asked.set(asked);
  }

  get text(): string {
    return textOf(this.#live.result());
  }
}
const List = Component({ selector: 'live-list', template: '<p>{{ text }}</p>', inputs: ['asked'] })(ListComponent);

class PageComponent {
  readonly lists = signal<readonly Asked[]>([]);
}
const Page = Component({
  selector: 'live-page',
  imports: [ListComponent],
  template: '@for (asked of lists(); track $index) { <live-list [asked]="asked" /> }',
})(PageComponent);

export const mountAngular: Mount = async (target, first) => {
  const app = await createApplication({ providers: [provideZonelessChangeDetection()] });
  const page = createComponent(PageComponent, { environmentInjector: app.injector, hostElement: target });
  page.instance.lists.set(first);
  app.injector.get(ApplicationRef).attachView(page.hostView);
  return { show: (lists) => page.instance.lists.set(lists), unmount: () => app.destroy() };
};
void List;
void Page;
