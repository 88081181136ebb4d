// Its component is compiled where it runs, as no build does it: import Angular's compiler before.
import { injectLiveQuery } from '@mangrove-kv/angular';
import { Component, InjectionToken, inject, provideZonelessChangeDetection } from '@angular/core';
import type { ApplicationConfig } from '@angular/core';
import { provideClientHydration } from '@angular/platform-browser';
import { RANGE, textOf } from './page.ts';
import type { Properties } from './page.ts';

const PROPERTIES = new InjectionToken<Properties>('properties');

export class PageComponent {
  readonly #properties = inject(PROPERTIES);
  readonly live = injectLiveQuery(this.#properties.source, RANGE, { initial: this.#properties.initial });

  get text(): string {
    return textOf(this.live.result());
  }
}
Component({
  selector: 'live-page',
  template:
    '<p>{{ text }}</p><ul>@for (entry of live.entries(); track entry[0]) {<li>{{ entry[0] }}={{ entry[1] }}</li>}</ul>',
})(PageComponent);

export function configOf(properties: Properties): ApplicationConfig {
  return {
    providers: [
      provideZonelessChangeDetection(),
      provideClientHydration(),
      { provide: PROPERTIES, useValue: properties },
    ],
  };
}
