// Makes elements.

type Attribute = string | number | boolean | undefined | ((event: Event) => void);
export type Child = Node | string | undefined;

/** An element; an attribute that is a function listens to the event of that name, `true` sets one, `false` and undefined leave it out. */
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

/** A button with a text. */
export function button(text: string, onClick: () => void, attributes: Readonly<Record<string, Attribute>> = {}): HTMLButtonElement {
  return h('button', { type: 'button', click: onClick, ...attributes }, text);
}

/** A field under its name. */
export function field<T extends HTMLElement>(name: string, control: T): HTMLLabelElement {
  return h('label', {}, h('span', {}, name), control);
}

/** Names with their values. */
export function figures(rows: readonly (readonly [name: string, value: string])[]): HTMLElement {
  const list = h('dl', { class: 'figures' });
  for (const [name, value] of rows) list.append(h('div', {}, h('dt', {}, name), h('dd', {}, value)));
  return list;
}

/** Replaces the children only where the text is another: so selections and what a screen reader reads stay. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
