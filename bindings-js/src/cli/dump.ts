// `dump` and `load`.
import type { KvCollection } from '../client/collection.ts';
import { ChangeList } from '../client/changes.ts';
import { Op } from '../client/opcodes.ts';
import { newTarget } from '../client/target.ts';
import { DatabaseScope } from '../client/scope.ts';
import type { Durability } from '../types.ts';
import type { Parsed } from './arguments.ts';
import { DEFAULT_CODECS, checkRaw } from './codecs.ts';
import type { Raw } from './codecs.ts';
import { NobodyReads, inside, invalid, within } from './failure.ts';
import { JsonReader } from './json.ts';
import { durabilityOf } from './records.ts';
import { read, write } from './store.ts';
import type { CollectionInfo, Opened, Store } from './store.ts';
import { Lines, Output } from './streams.ts';

const DEFAULT_BATCH = 1000;

export async function dump(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  const [only, raw] = [parsed.text('collection'), checkRaw(parsed.text('raw'))];
  await read(path, async (store, output) => {
    if (only !== undefined) await store.existing(only, raw);
    for (const info of await store.collections()) {
      if (only === undefined) await dumpOne(store, info, `"collection":${JSON.stringify(info.name)},`, raw, output);
      else if (only === info.name) await dumpOne(store, info, '', raw, output);
    }
  });
}

async function dumpOne(store: Store, info: CollectionInfo, field: string, raw: Raw, output: Output): Promise<void> {
  const { name, count, keyCodec, valueCodec } = info;
  const isDefault = keyCodec === DEFAULT_CODECS[0] && valueCodec === DEFAULT_CODECS[1];
  // What the records alone would not bring back.
  if (!isDefault || count === 0) output.line(`{${field}"keyCodec":${JSON.stringify(keyCodec)},"valueCodec":${JSON.stringify(valueCodec)}}`);
  const { collection, codecs } = store.open(name, keyCodec, valueCodec, raw);
  for await (const [key, value] of collection as KvCollection<never, string>) {
    output.line(`{${field}"key":${codecs.showKey(key)},"value":${value}}`);
  }
}

interface Line {
  collection?: string;
  /** As they were written. */
  key?: string;
  value?: string;
  keyCodec?: string;
  valueCodec?: string;
}

/** What an object lacks of a record, or of codecs if it has one of them. */
function missingIn(text: string): string | undefined {
  let object: unknown;
  try {
    object = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof object !== 'object' || object === null || Array.isArray(object)) return undefined;
  const [record, codecs] = [['key', 'value'], ['keyCodec', 'valueCodec']] as const;
  const has = (name: string): boolean => Object.hasOwn(object, name);
  const missing = (codecs.some(has) && !record.some(has) ? codecs : record).find((name) => !has(name));
  return missing === undefined ? undefined : `"${missing}" is missing`;
}

function parseLine(text: string): Line {
  const line: Line = {};
  const reader = new JsonReader(text, true);
  try {
    reader.properties((name) => {
      if (Object.hasOwn(line, name)) reader.fail(`${name} is there twice`);
      reader.space();
      const start = reader.at;
      switch (name) {
        case 'key':
        case 'value':
          reader.value();
          line[name] = reader.since(start);
          return;
        case 'collection':
        case 'keyCodec':
        case 'valueCodec':
          // `null` is as good as nothing.
          if (!text.startsWith('null', start)) line[name] = reader.string();
          else reader.value();
          return;
        default: reader.fail(`there is no ${JSON.stringify(name)}`);
      }
    });
    reader.end();
  } catch (error) {
    throw invalid(`not a line of {"key":…,"value":…} (${missingIn(text) ?? (error as Error).message})`);
  }
  return line;
}

/** Collects the changes of a batch. */
class Loader {
  readonly #store: Store;
  readonly #collection: string;
  readonly #raw: Raw;
  readonly #opened = new Map<string, Opened>();
  changes = new ChangeList();

  constructor(store: Store, collection: string, raw: Raw) {
    this.#store = store;
    this.#collection = collection;
    this.#raw = raw;
  }

  /** Applies a line; gives its key, if it has one. */
  async apply(text: string): Promise<string | undefined> {
    const { collection = this.#collection, key, value, keyCodec, valueCodec } = parseLine(text);
    if (key !== undefined && value !== undefined && keyCodec === undefined && valueCodec === undefined) {
      const { target, codecs } = await this.#open(collection);
      const parsed = codecs.parseKey(key);
      inside('the value', () => this.changes.set(target, parsed, value, 0));
      return key;
    }
    if (key === undefined && value === undefined && keyCodec !== undefined && valueCodec !== undefined) {
      await this.#create(collection, keyCodec, valueCodec);
      return undefined;
    }
    throw invalid(`a line has to have "key" and "value", or "keyCodec" and "valueCodec" (${missingIn(text) ?? 'it has both'})`);
  }

  async #open(name: string): Promise<Opened> {
    let opened = this.#opened.get(name);
    if (opened === undefined) this.#opened.set(name, opened = await this.#store.stored(name, this.#raw));
    return opened;
  }

  /** A collection comes with its first record, which need not stay. */
  async #create(name: string, keyCodec: string, valueCodec: string): Promise<void> {
    const opened = this.#store.open(name, keyCodec, valueCodec, this.#raw);
    this.#opened.set(name, opened);
    const isThere = (await this.#store.collections()).some((info) => info.name === name && info.keyCodec === keyCodec && info.valueCodec === valueCodec);
    if (isThere) return;
    const bytes = { encode: (part: unknown) => part as Uint8Array, decode: (part: Uint8Array) => part };
    const target = newTarget<Uint8Array, Uint8Array>(opened.target.connection, name, { id: keyCodec, ...bytes }, { id: valueCodec, ...bytes });
    this.changes.set(target, PLACEHOLDER, PLACEHOLDER, 0);
    this.changes.delete(target, PLACEHOLDER);
  }
}

/** No codec of the package writes such a key. */
const PLACEHOLDER = Uint8Array.of(0);

export async function load(parsed: Parsed): Promise<void> {
  const [path] = parsed.positionals as [string];
  const [raw, durability] = [checkRaw(parsed.text('raw')), durabilityOf(parsed)];
  const batch = parsed.count('batch', DEFAULT_BATCH, 1);
  const isAcked = parsed.flag('ack');
  if (isAcked && durability === 'none') throw invalid('--ack needs commits that are durable: --durability strict or relaxed');
  await write(path, { create: true, leavesNothing: true, durability }, (store) => loadAll(store, new Loader(store, parsed.text('collection') ?? '', raw), { durability, batch, isAcked }));
}

interface LoadOptions {
  readonly durability: Durability;
  readonly batch: number;
  readonly isAcked: boolean;
}

async function loadAll(store: Store, loader: Loader, { durability, batch, isAcked }: LoadOptions): Promise<void> {
  const lines = new Lines();
  const scope = new DatabaseScope(store.connection, durability);
  let output = isAcked ? new Output() : undefined;
  for (let isMore = true; isMore;) {
    const keys: string[] = [];
    loader.changes = new ChangeList();
    for (let count = 0; isMore && count < batch; count++) {
      // The writer of the next line may wait for the acknowledgement of this one.
      if (isAcked && count > 0 && lines.isPausing()) break;
      const line = lines.next();
      isMore = line !== undefined;
      if (line === undefined) break;
      try {
        const key = await loader.apply(Lines.text(line));
        if (key !== undefined && isAcked) keys.push(key);
      } catch (error) {
        throw within(`line ${lines.number}`, error);
      }
    }
    const { changes } = loader;
    if (changes.length > 0) {
      await scope.write(Op.batch, undefined, (writer) => writer.uv(changes.length).raw(changes.bytes), (reader) => reader.uv());
    }
    // Does nothing after a strict commit.
    if (isAcked) await store.connection.request((writer) => writer.u8(Op.flush), () => undefined);
    try {
      for (const key of keys) output?.line(key);
      output?.flush();
    } catch (error) {
      // Once nobody reads them any more the loading goes on without.
      if (!(error instanceof NobodyReads)) throw error;
      output = undefined;
    }
  }
}
