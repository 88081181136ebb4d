// Whether the page has an origin, without which it has no storage.

/** Whether this is a sandboxed frame or a `data:` page. */
export function isOpaque(): boolean {
  return globalThis.origin === 'null';
}
