// `get`, `set`, `del`, `scan` and `count`.
import * as fs from 'node:fs';
import type { RangeOptions } from '../types.ts';
import { KvError } from '../errors.ts';
import type { Options, Parsed } from './arguments.ts';
import { DEFAULT_CODECS, checkRaw, codecsOf } from './codecs.ts';
import type { CliCodecs } from './codecs.ts';
import { inside, invalid } from './failure.ts';
import { DatabaseScope, renameIn } from '../client/scope.ts';
import { read, write } from './store.ts';
import { print, readAllInput } from './streams.ts';
import type { Durability } from '../types.ts';

export const COLLECTION: Options = { collection: 'NAME', raw: 'FORM' };
export const DURABILITY: Options = { durability: 'WHEN' };
export const RANGE: Options = { start: 'KEY', end: 'KEY', prefix: 'KEY' };

export function durabilityOf(parsed: Parsed): Durability {
  const durability = parsed.text('durability') ?? 'strict';
  if (durability === 'strict' || durability === 'relaxed' || durability === 'none') return durability;
  throw invalid(`--durability has to be strict, relaxed or none, not ${durability}`);
}

function rangeOf(parsed: Parsed, codecs: CliCodecs): RangeOptions<unknown> {
  const bound = (option: string): { readonly key: unknown } | undefined => {
    const json = parsed.text(option);
    return json === undefined ? undefined : inside(`--${option}`, () => {
      const key = option === 'prefix' ? codecs.readKey(json) : codecs.parseKey(json);
      return { key };
    });
  };
  const [start, end, prefix] = [bound('start'), bound('end'), bound('prefix')];
  return {
    ...(start === undefined ? {} : { gte: start.key }),
    ...(end === undefined ? {} : { lt: end.key }),
    ...(prefix === undefined ? {} : { prefix: prefix.key }),
  };
}

export async function get(parsed: Parsed): Promise<void> {
  const [path, json] = parsed.positionals as [string, string];
  const raw = checkRaw(parsed.text('raw'));
  const value = await read(path, async (store) => {
    const name = parsed.text('collection') ?? '';
    const { codecs } = await store.stored(name, raw);
    const key = codecs.parseKey(json);
    return (await store.existing(name, raw)).collection.get(key);
  });
  if (value === undefined) throw new KvError('KV_NOT_FOUND', `there is no key ${json}`);
  print(value);
}

export async function set(parsed: Parsed): Promise<void> {
  const [path, json, given] = parsed.positionals as [string, string, string | undefined];
  const [raw, durability] = [checkRaw(parsed.text('raw')), durabilityOf(parsed)];
  const text = given ?? readAllInput();
  const check = (codecs: CliCodecs): unknown => {
    const key = codecs.parseKey(json);
    inside('the value', () => codecs.value.encode(text));
    return key;
  };
  // No database is created for what cannot be stored in it.
  if (!fs.existsSync(path)) check(codecsOf(...DEFAULT_CODECS, raw));
  await write(path, { create: true, durability }, async (store) => {
    const { collection, codecs } = await store.stored(parsed.text('collection') ?? '', raw);
    await collection.set(check(codecs), text);
  });
}

export async function del(parsed: Parsed): Promise<void> {
  const [path, json] = parsed.positionals as [string, string];
  const [raw, durability] = [checkRaw(parsed.text('raw')), durabilityOf(parsed)];
  const found = await write(path, { durability }, async (store) => {
    const { collection, codecs } = await store.stored(parsed.text('collection') ?? '', raw);
    return collection.delete(codecs.parseKey(json));
  });
  print(String(found));
}

export async function rename(parsed: Parsed): Promise<void> {
  const [path, from, to] = parsed.positionals as [string, string, string];
  const durability = durabilityOf(parsed);
  if (from === '' || to === '') throw invalid('the database\'s own collection, whose name is "", keeps its name');
  print(String(await write(path, { durability }, ({ connection }) => renameIn(new DatabaseScope(connection, durability), from, to))));
}

export async function scan(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  const raw = checkRaw(parsed.text('raw'));
  const limit = parsed.count('limit', Infinity);
  await read(path, async (store, output) => {
    const { collection, codecs } = await store.existing(parsed.text('collection') ?? '', raw);
    const options = { ...rangeOf(parsed, codecs), reverse: parsed.flag('reverse'), limit };
    if (parsed.flag('keys-only')) {
      for await (const key of collection.keys(options)) output.line(`{"key":${codecs.showKey(key as never)}}`);
    } else {
      for await (const [key, value] of collection.entries(options)) output.line(`{"key":${codecs.showKey(key as never)},"value":${value}}`);
    }
  });
}

export async function count(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  const raw = checkRaw(parsed.text('raw'));
  const found = await read(path, async (store) => {
    const { collection, codecs } = await store.existing(parsed.text('collection') ?? '', raw);
    return collection.count(rangeOf(parsed, codecs));
  });
  print(String(found));
}
