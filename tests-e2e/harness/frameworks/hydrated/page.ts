// What a server renders and a page takes over.
import type { Collection } from 'mangrove-kv';
import type { LiveResult } from 'mangrove-kv/live';

export type Notes = Collection<string, number>;

/** The properties of the component, in every framework. */
export interface Properties {
  readonly source: Notes;
  readonly initial: readonly (readonly [string, number])[] | undefined;
}

export const RANGE = { prefix: 'a' };

/** All texts that components were drawn with. */
export const rendered: string[] = [];

export function textOf({ status, entries }: Pick<LiveResult<string, number>, 'status' | 'entries'>): string {
  const text = `${status}: ${entries.map(([key, value]) => `${key}=${value}`).join(' ')}`;
  rendered.push(text);
  return text;
}
