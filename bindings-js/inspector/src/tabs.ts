// Tabs as in the ARIA Authoring Practices: the arrow keys move between tabs and open them.
import { h } from './dom.ts';

export interface Tab {
  readonly title: string;
  readonly element: HTMLElement;
}

let lastId = 0;

export class Tabs<T extends Tab> {
  readonly bar = h('div', { role: 'tablist', class: 'tabs' });
  readonly panels = h('div', { class: 'panels' });
  readonly #tabs: readonly { readonly view: T; readonly tab: HTMLElement; readonly panel: HTMLElement }[];
  readonly #onOpen: (view: T) => void;
  active: T;

  constructor(name: string, views: readonly [T, ...T[]], onOpen: (view: T) => void) {
    this.#onOpen = onOpen;
    this.active = views[0];
    this.bar.setAttribute('aria-label', name);
    const prefix = `mangrove-tab-${++lastId}`;
    this.#tabs = views.map((view, index) => {
      const id = `${prefix}-${index}`;
      const panel = h('div', { role: 'tabpanel', id: `${id}-panel`, 'aria-labelledby': id });
      panel.append(view.element);
      const tab = h(
        'button',
        { type: 'button', role: 'tab', id, 'aria-controls': `${id}-panel`, click: () => this.open(view) },
        view.title,
      );
      this.bar.append(tab);
      this.panels.append(panel);
      return { view, tab, panel };
    });
    this.bar.addEventListener('keydown', (event) => this.#key(event));
    this.#draw();
  }

  open(view: T): void {
    if (view === this.active) return;
    this.active = view;
    this.#draw();
    this.#onOpen(view);
  }

  #draw(): void {
    for (const { view, tab, panel } of this.#tabs) {
      const isActive = view === this.active;
      tab.setAttribute('aria-selected', String(isActive));
      tab.tabIndex = isActive ? 0 : -1;
      panel.hidden = !isActive;
    }
  }

  #key(event: KeyboardEvent): void {
    const at = this.#tabs.findIndex(({ view }) => view === this.active);
    const last = this.#tabs.length - 1;
    const targets: Record<string, number> = {
      ArrowRight: at === last ? 0 : at + 1,
      ArrowLeft: at === 0 ? last : at - 1,
      Home: 0,
      End: last,
    };
    const target = targets[event.key];
    const next = target === undefined ? undefined : this.#tabs[target];
    if (next === undefined) return;
    event.preventDefault();
    this.open(next.view);
    next.tab.focus();
  }
}
