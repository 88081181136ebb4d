// Helpers shared by the tests: temporary directories, expected error codes, reproducible random
// numbers.
import assert from 'node:assert/strict';
import { cpSync, lstatSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open } from 'mangrove-kv';
import type { Database, Key, KvErrorCode, OpenOptions } from 'mangrove-kv';

/** Calls `use` with a path where nothing exists, and removes whatever it creates there. */
export async function withPath(use: (path: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-'));
  try {
    await use(join(directory, 'database'));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Calls `use` with an empty database in memory. */
export async function withMemory<K = Key, V = unknown>(
  options: OpenOptions<K, V>,
  use: (db: Database<K, V>) => Promise<void>,
): Promise<void> {
  const db = await open<K, V>('test', { storage: 'memory', ...options });
  try {
    await use(db);
  } finally {
    await db.close();
  }
}

/** Checks that an error has this code, and a message that says something. */
export function code(expected: KvErrorCode): (error: unknown) => boolean {
  return (error) => {
    const { code, message, name } = error as { code?: unknown; message?: unknown; name?: unknown };
    assert.equal(code, expected, String(message));
    assert.equal(name, 'KvError');
    assert.ok(typeof message === 'string' && message.length > 10);
    return true;
  };
}

export async function rejects(promise: Promise<unknown>, expected: KvErrorCode): Promise<void> {
  await assert.rejects(promise, code(expected));
}

/** An object that has other members of some names: those for which `own` returns one. */
export function overriding<T extends object>(target: T, own: (name: string | symbol) => unknown): T {
  return new Proxy(target, {
    get: (_, name) => {
      const member: unknown = own(name) ?? Reflect.get(target, name, target);
      return typeof member === 'function' ? (member.bind(target) as unknown) : member;
    },
  });
}

/** Numbers in [0, 1), the same in every run with the same seed. */
export function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The one block of the guide in this language, of those with `words`. */
export function guideBlock(language: string, words = ''): string {
  const page = readFileSync(new URL('../../../../docs/GUIDE.md', import.meta.url), 'utf8');
  const blocks = page
    .split(`\n\`\`\`${language}\n`)
    .slice(1)
    .map((block) => block.split('\n```\n')[0] as string)
    .filter((block) => block.includes(words));
  assert.equal(blocks.length, 1);
  return blocks[0] as string;
}

/** Copies a directory, but for sockets, which cannot be. */
export function copyDirectory(from: string, to: string): void {
  cpSync(from, to, { recursive: true, preserveTimestamps: true, filter: (path) => !lstatSync(path).isSocket() });
}

/** Opens a database that nobody else can open meanwhile. */
export function openAlone(name: string | URL, options: OpenOptions = {}): Promise<Database> {
  return open(name, { share: false, ...options });
}
