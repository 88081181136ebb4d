// Helpers that create DOM elements.

type Attribute = string | number | boolean | undefined | ((event: Event) => void);
export type Child = Node | string | undefined;

/**
 * Creates an element. A function as an attribute listens to the event of that name; `true` sets the
 * attribute to the empty string, `false` and `undefined` omit it.
 */
export function h<T extends keyof HTMLElementTagNameMap>(
  tag: T,
  attributes: Readonly<Record<string, Attribute>> = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[T] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== undefined) element.append(child);
  return element;
}

/** Creates a button with a text. */
export function button(
  text: string,
  onClick: () => void,
  attributes: Readonly<Record<string, Attribute>> = {},
): HTMLButtonElement {
  return h('button', { type: 'button', click: onClick, ...attributes }, text);
}

/** Creates a labelled field. */
export function field<T extends HTMLElement>(name: string, control: T): HTMLLabelElement {
  return h('label', {}, h('span', {}, name), control);
}

/** Creates a list of names with their values. */
export function figures(rows: readonly (readonly [name: string, value: string])[]): HTMLElement {
  const list = h('dl', { class: 'figures' });
  for (const [name, value] of rows) list.append(h('div', {}, h('dt', {}, name), h('dd', {}, value)));
  return list;
}

/** Sets the text only if it differs, to preserve selections and the position of screen readers. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
