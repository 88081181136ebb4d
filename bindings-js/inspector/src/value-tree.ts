// Values as expandable trees. Closed branches are not created.
import { formatBytes, formatCount, plural } from './format.ts';
import { toHex } from 'mangrove-kv/internal';
import { h } from './dom.ts';

/** Number of children created at once; more on request. */
const CHUNK = 100;
const PREVIEW_CHARACTERS = 120;
const HEX_BYTES = 256;
const BYTES_PER_LINE = 16;

type Item = readonly [name: string | undefined, value: unknown];

function bytesOf(value: unknown): Uint8Array | undefined {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : undefined;
}

function typeName(value: object): string {
  const { name } = (Object.getPrototypeOf(value) as { constructor?: { name?: string } } | null)?.constructor ?? {};
  return name ?? 'Object';
}

/** The items in a value; `undefined` if it cannot contain any. */
function itemsOf(value: object): Item[] | undefined {
  if (value instanceof Map) return [...value].map(([key, item]) => [shortText(key), item]);
  if (value instanceof Set) return [...value].map((item) => [undefined, item]);
  if (Array.isArray(value)) return Array.from(value, (item, index) => [String(index), item]);
  if (value instanceof Error) {
    const names = ['name', 'message', 'cause', 'stack'] as const;
    return names.filter((name) => value[name] !== undefined).map((name) => [name, value[name]]);
  }
  if (value instanceof Date || value instanceof RegExp || bytesOf(value) !== undefined) return undefined;
  return Object.entries(value);
}

/** A value in one line, truncated to `room` characters. */
export function shortText(value: unknown, room = PREVIEW_CHARACTERS, depth = 0): string {
  const text = (() => {
    if (typeof value === 'string') return JSON.stringify(value.length > room ? value.slice(0, room) : value);
    if (typeof value === 'bigint') return `${value}n`;
    if (Object.is(value, -0)) return '-0';
    if (typeof value !== 'object' || value === null) return String(value);
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    const bytes = bytesOf(value);
    if (bytes !== undefined)
      return `${typeName(value)}(${formatBytes(bytes.length)}) ${toHex(bytes.subarray(0, 8))}${bytes.length > 8 ? ' …' : ''}`;
    return containerText(value, room, depth);
  })();
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

function containerText(value: object, room: number, depth: number): string {
  const isList = Array.isArray(value) || value instanceof Set;
  const isKeyed = !isList;
  const name = Array.isArray(value) || typeName(value) === 'Object' ? '' : `${typeName(value)} `;
  const [open, close] = isList ? ['[', ']'] : ['{', '}'];
  const parts: string[] = [];
  let length = 0;
  for (const [key, item] of itemsOf(value) ?? []) {
    if (depth > 2 || length > room) {
      parts.push('…');
      break;
    }
    const text = `${isKeyed ? `${key}: ` : ''}${shortText(item, room - length, depth + 1)}`;
    length += text.length + 2;
    parts.push(text);
  }
  return `${name}${open}${parts.join(', ')}${close}`;
}

function kindOf(value: unknown): string {
  if (value === null || typeof value === 'undefined') return 'null';
  if (typeof value !== 'object') return typeof value;
  return value instanceof Date ? 'date' : value instanceof RegExp ? 'string' : 'object';
}

function hexDump(bytes: Uint8Array): HTMLElement {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES); at += BYTES_PER_LINE) {
    const line = bytes.subarray(at, Math.min(at + BYTES_PER_LINE, HEX_BYTES));
    const text = Array.from(line, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '·')).join('');
    lines.push(`${at.toString(16).padStart(4, '0')}  ${toHex(line).padEnd(BYTES_PER_LINE * 3)} ${text}`);
  }
  if (bytes.length > HEX_BYTES) lines.push(`… ${formatBytes(bytes.length - HEX_BYTES)} more`);
  return h('pre', { class: 'hex', tabindex: 0, 'aria-label': 'Bytes' }, lines.join('\n'));
}

function summary(value: object, items: readonly Item[]): string {
  if (Array.isArray(value)) return `Array, ${plural(items.length, 'element')}`;
  if (value instanceof Map || value instanceof Set)
    return `${typeName(value)}, ${plural(items.length, 'entry', 'entries')}`;
  return items.length === 0
    ? `${typeName(value)}, empty`
    : `${typeName(value)}, ${plural(items.length, 'property', 'properties')}`;
}

function appendItems(list: HTMLElement, items: readonly Item[], from: number, above: readonly object[]): void {
  for (const [name, value] of items.slice(from, from + CHUNK)) list.append(branch(name, value, above, false));
  const next = from + CHUNK;
  if (next >= items.length) return;
  const more = h(
    'li',
    {},
    h(
      'button',
      {
        type: 'button',
        class: 'link',
        click: () => {
          more.remove();
          appendItems(list, items, next, above);
        },
      },
      `${formatCount(items.length - next)} more`,
    ),
  );
  list.append(more);
}

function branch(name: string | undefined, value: unknown, above: readonly object[], isOpen: boolean): HTMLLIElement {
  const label = name === undefined ? undefined : h('span', { class: 'name' }, name);
  const bytes = typeof value === 'object' && value !== null ? bytesOf(value) : undefined;
  const items = typeof value === 'object' && value !== null ? itemsOf(value) : undefined;
  if (typeof value !== 'object' || value === null || (items === undefined && bytes === undefined)) {
    return h('li', {}, label, h('span', { class: `value ${kindOf(value)}` }, shortText(value, 10_000)));
  }
  if (above.includes(value)) return h('li', {}, label, h('span', { class: 'value null' }, '↑ the same object'));
  const text = items === undefined ? `${typeName(value)}, ${formatBytes(bytes?.length ?? 0)}` : summary(value, items);
  const details = h('details', { open: isOpen }, h('summary', {}, label, h('span', { class: 'value object' }, text)));
  const fill = (): void => {
    if (!details.open || details.childElementCount > 1) return;
    if (bytes !== undefined) details.append(hexDump(bytes));
    else {
      const list = h('ul');
      appendItems(list, items ?? [], 0, [...above, value]);
      details.append(list);
    }
  };
  details.addEventListener('toggle', fill);
  fill();
  return h('li', {}, details);
}

/** Creates the tree of a value, with its first level open. */
export function valueTree(value: unknown): HTMLElement {
  return h('ul', { class: 'tree' }, branch(undefined, value, [], true));
}
