// Selects the page by the fragment of the address, which needs no server and works offline.
import { element } from './dom.ts';

export interface Page {
  readonly id: 'explore' | 'inspect' | 'bench' | 'replication';
  readonly title: string;
  /** Called when the page comes into view. */
  show(): void | Promise<void>;
}

function idOf(hash: string): string {
  return hash.replace(/^#\/?/, '');
}

export class Router {
  readonly #pages: readonly [Page, ...Page[]];
  readonly #onProblem: (error: unknown, retry: () => void) => void;
  #active: Page | undefined;

  constructor(pages: readonly [Page, ...Page[]], onProblem: (error: unknown, retry: () => void) => void) {
    this.#pages = pages;
    this.#onProblem = onProblem;
    addEventListener('hashchange', () => {
      // The target of the skip link is not a page.
      if (location.hash !== '#page') this.#open(true);
    });
  }

  /** Id of the page in view. */
  get active(): Page['id'] | undefined {
    return this.#active?.id;
  }

  start(): void {
    this.#open(false);
  }

  goTo(id: Page['id']): void {
    location.hash = `/${id}`;
  }

  #open(isMove: boolean): void {
    const page = this.#pages.find(({ id }) => id === idOf(location.hash)) ?? this.#pages[0];
    if (page === this.#active) return;
    this.#active = page;
    for (const { id } of this.#pages) element(id).hidden = id !== page.id;
    for (const link of document.querySelectorAll<HTMLAnchorElement>('.pages a')) {
      if (idOf(link.hash) === page.id) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    document.title = `${page.title} · Mangrove`;
    if (isMove) scrollTo(0, 0);
    this.#show(page);
  }

  #show(page: Page): void {
    Promise.resolve()
      .then(() => page.show())
      .catch((error: unknown) => this.#onProblem(error, () => this.#show(page)));
  }
}
