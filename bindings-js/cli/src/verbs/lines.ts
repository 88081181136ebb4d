// The verbs for everything as lines: dump prints the lines that load stores.
import type { Batch, Collection, Database, Durability } from 'mangrove-kv';
import { Codecs, DEFAULT_CODECS } from '../codecs.ts';
import type { RawForm } from '../codecs.ts';
import { codecsOf, collectionIn, readable, readerIn } from '../collection.ts';
import { BrokenPipe, invalid, within } from '../failure.ts';
import { Lines } from '../input.ts';
import { storedCollections } from 'mangrove-kv/internal/tool';
import { Output } from '../output.ts';
import { memberTexts } from '../members.ts';
import { parseJson } from '../forms.ts';
import type { Json } from '../forms.ts';
import { read, write } from '../store.ts';
import type { StoreOptions } from '../store.ts';
import type { WritingOptions } from './records.ts';

/** Records fetched at a time. */
const FETCHED = 64;

export interface DumpOptions extends StoreOptions {
  readonly collection?: string;
  readonly raw?: RawForm;
}

export async function dump(path: string, options: DumpOptions): Promise<void> {
  const { collection, raw } = options;
  await read(path, options, async (db) => {
    const output = new Output();
    await output.during(async () => {
      if (collection !== undefined) await readable(db, { collection });
      const snapshot = db.snapshot();
      for (const stored of await storedCollections(db)) {
        const { name, count, keyCodec, valueCodec } = stored;
        if (name !== (collection ?? name)) continue;
        const field = collection === undefined ? `"collection":${JSON.stringify(name)},` : '';
        // The records alone would not bring this back.
        const isDefault = keyCodec === DEFAULT_CODECS.keyCodec && valueCodec === DEFAULT_CODECS.valueCodec;
        if (!isDefault || count === 0)
          output.line(`{${field}"keyCodec":${JSON.stringify(keyCodec)},"valueCodec":${JSON.stringify(valueCodec)}}`);
        const codecs = new Codecs(stored, raw);
        const records = readerIn(snapshot, db, name, codecs).entries();
        for (
          let fetched = await records.nextMany(FETCHED);
          fetched.length > 0;
          fetched = await records.nextMany(FETCHED)
        ) {
          for (const [key, value] of fetched)
            output.line(`{${field}"key":${codecs.showKey(key)},"value":${codecs.showValue(value)}}`);
        }
      }
    });
  });
}

export interface LoadOptions extends WritingOptions {
  readonly batch: number;
  readonly ack?: boolean;
}

const FIELDS = ['collection', 'key', 'value', 'keyCodec', 'valueCodec'];

/** Names the first field that an object lacks to be a record, or codecs if it has only their fields. */
function missingIn(has: (name: string) => boolean): string {
  const names =
    (has('keyCodec') || has('valueCodec')) && !has('key') && !has('value')
      ? ['keyCodec', 'valueCodec']
      : ['key', 'value'];
  const missing = names.find((name) => !has(name));
  return missing === undefined ? 'it has both' : `"${missing}" is missing`;
}

interface Opened {
  readonly codecs: Codecs;
  readonly records: Collection<unknown, unknown>;
}

/** Stores lines, a batch of them in one commit. */
class Loader {
  readonly #db: Database;
  /** The collection of lines that name none. */
  readonly #collection: string;
  readonly #raw: RawForm | undefined;
  /** The collections seen so far. */
  readonly #opened = new Map<string, Opened>();

  constructor(db: Database, { collection, raw }: LoadOptions) {
    this.#db = db;
    this.#collection = collection;
    this.#raw = raw;
  }

  /** Adds a line to a batch; returns the text of its key, if it has one. */
  async apply(batch: Batch<unknown, unknown>, text: string): Promise<string | undefined> {
    const line = parseJson(text);
    const texts = memberTexts(text);
    if (texts === undefined || typeof line !== 'object' || line === null || Array.isArray(line))
      throw invalid('not a line of {"key":…,"value":…}');
    const fields = line as { readonly [name: string]: Json };
    const has = (name: string): boolean => texts.has(name);
    const unknown = [...texts.keys()].find((name) => !FIELDS.includes(name));
    if (unknown !== undefined)
      throw invalid(
        `not a line of {"key":…,"value":…} (${has('key') && has('value') ? `unknown field ${JSON.stringify(unknown)}` : missingIn(has)})`,
      );
    const { collection = this.#collection, key, value, keyCodec, valueCodec } = fields;
    if (typeof collection !== 'string') throw invalid('not a line of {"key":…,"value":…} ("collection" is no string)');
    if (key !== undefined && value !== undefined && !has('keyCodec') && !has('valueCodec')) {
      const { codecs, records } = this.#opened.get(collection) ?? (await this.#open(collection));
      batch.collection(records).set(...codecs.record(key, value, texts.get('value') as string));
      return texts.get('key');
    }
    if (typeof keyCodec !== 'string' || typeof valueCodec !== 'string' || has('key') || has('value')) {
      throw invalid(`a line has to have "key" and "value", or "keyCodec" and "valueCodec" (${missingIn(has)})`);
    }
    const { codecs, records } = this.#keep(collection, new Codecs({ keyCodec, valueCodec }, this.#raw));
    // The first write creates a collection.
    batch.collection(records).set(codecs.someKey, codecs.someValue).delete(codecs.someKey);
    return undefined;
  }

  async #open(name: string): Promise<Opened> {
    const { codecs } = await codecsOf(this.#db, { collection: name, ...(this.#raw && { raw: this.#raw }) });
    return this.#keep(name, codecs);
  }

  #keep(name: string, codecs: Codecs): Opened {
    const opened = { codecs, records: collectionIn(this.#db, name, codecs) };
    this.#opened.set(name, opened);
    return opened;
  }
}

/** Echoes keys. Once the output is closed, loading continues without echoes. */
class Acknowledger {
  #isWanted: boolean;
  #keys: string[] = [];

  constructor(isWanted: boolean) {
    this.#isWanted = isWanted;
  }

  add(key: string | undefined): void {
    if (this.#isWanted && key !== undefined) this.#keys.push(key);
  }

  committed(): void {
    const output = new Output();
    try {
      for (const key of this.#keys.splice(0)) output.line(key);
      output.flush();
    } catch (error) {
      if (!(error instanceof BrokenPipe)) throw error;
      this.#isWanted = false;
    }
  }
}

export async function load(path: string, options: LoadOptions): Promise<void> {
  const { ack = false, durability, batch: size } = options;
  if (ack && durability === 'none')
    throw invalid('--ack needs commits that are durable: --durability strict or relaxed');
  await write(path, { ...options, create: true, isUndone: true }, async (db) => {
    const [loader, lines, acknowledger] = [new Loader(db, options), new Lines(), new Acknowledger(ack)];
    try {
      for (let isMore = true; isMore; ) {
        using batch = db.batch() as Batch<unknown, unknown>;
        for (let count = 0; count < size; count++) {
          // The writer of the next line may wait for the acknowledgement of this one.
          if (ack && count > 0 && (await lines.isPausing())) break;
          const line = await lines.next();
          isMore = line !== undefined;
          if (line === undefined) break;
          acknowledger.add(await loading(lines.number, () => loader.apply(batch, line)));
        }
        if (batch.length > 0) await commit(db, batch, durability, ack);
        acknowledger.committed();
      }
    } finally {
      lines.end();
    }
  });
}

async function loading<T>(number: number, work: () => Promise<T>): Promise<T> {
  const outcome = await work().then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  return within(`line ${number}`, () => {
    if ('error' in outcome) throw outcome.error;
    return outcome.value;
  });
}

async function commit(
  db: Database,
  batch: Batch<unknown, unknown>,
  durability: Durability,
  isAcknowledged: boolean,
): Promise<void> {
  await batch.commit({ durability });
  // This does nothing after a strict commit.
  if (isAcknowledged) await db.flush();
}
