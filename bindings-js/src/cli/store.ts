// Databases as the tool opens them: directories, or single data files as browsers export them.
import * as fs from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { Connection } from '../client/connection.ts';
import { KvCollection } from '../client/collection.ts';
import { LocalTransport } from '../client/local-transport.ts';
import { checkOptions } from '../client/options.ts';
import { Op } from '../client/opcodes.ts';
import { newTarget } from '../client/target.ts';
import type { Target } from '../client/target.ts';
import { DatabaseScope } from '../client/scope.ts';
import { KvError } from '../errors.ts';
import { prepareDirectory } from '../node-host.ts';
import { createModuleLoader } from '../node-wasm.ts';
import { DATA_FILE, LOG_FILE, NodeStorage } from '../storage/node-fs.ts';
import { lockDirectorySync } from '../storage/node-lock.ts';
import type { CustomStorage, Durability, OpenOptions, Stats } from '../types.ts';
import { RenamedStorage } from '../upkeep/files.ts';
import { DEFAULT_CODECS, codecsOf } from './codecs.ts';
import type { CliCodecs, Raw } from './codecs.ts';
import { codeOf, invalid } from './failure.ts';
import { Output } from './streams.ts';

/** How often something is read while a writer overwrites it. */
const READ_ATTEMPTS = 10;

/** What a backup begins with. */
const BACKUP_MAGIC = 'MANGRBAK';

const loader = createModuleLoader(() => new URL('./mangrove_bg.wasm', import.meta.url));

export interface CollectionInfo {
  readonly name: string;
  readonly count: number;
  readonly keyCodec: string;
  readonly valueCodec: string;
}

/** A collection, with the codecs that it has or will have when it is created. */
export interface Opened {
  readonly collection: KvCollection<unknown, string>;
  readonly target: Target<unknown, string>;
  readonly codecs: CliCodecs;
}

/** An open database. */
export class Store {
  readonly connection: Connection;
  readonly #durability: Durability;

  constructor(connection: Connection, durability: Durability) {
    this.connection = connection;
    this.#durability = durability;
  }

  collections(): Promise<CollectionInfo[]> {
    return this.connection.request((writer) => writer.u8(Op.collections), (reader) => {
      const found: CollectionInfo[] = [];
      for (let left = reader.uv(); left > 0; left--) {
        found.push({ name: reader.str(), count: reader.uv(), keyCodec: reader.str(), valueCodec: reader.str() });
      }
      return found;
    });
  }

  json<T>(op: number): Promise<T> {
    return this.connection.request((writer) => writer.u8(op), (reader) => JSON.parse(reader.str()) as T);
  }

  /** A collection with codecs of these ids. */
  open(name: string, keyCodec: string, valueCodec: string, raw: Raw): Opened {
    const { connection } = this;
    const codecs = codecsOf(keyCodec, valueCodec, raw);
    const target = newTarget<unknown, string>(connection, name, codecs.key, codecs.value);
    return { target, codecs, collection: new KvCollection(target, new DatabaseScope(connection, this.#durability)) };
  }

  /** A collection with the codecs that are stored with it, or will be. */
  async stored(name: string, raw: Raw): Promise<Opened> {
    const found = (await this.collections()).find((info) => info.name === name);
    const [key, value] = found === undefined ? DEFAULT_CODECS : [found.keyCodec, found.valueCodec];
    return this.open(name, key, value, raw);
  }

  /** As `stored`. The default one is there in every database, even if nothing was ever written to it. */
  async existing(name: string, raw: Raw): Promise<Opened> {
    const found = (await this.collections()).some((info) => info.name === name);
    if (found || name === '') return this.stored(name, raw);
    throw new KvError('KV_NOT_FOUND', `there is no collection ${JSON.stringify(name)}`);
  }
}

interface Place {
  readonly storage: CustomStorage;
  /** A single file stays one: once it is closed its log is empty. */
  readonly isSingle: boolean;
  readonly directory: string;
}

function isFile(path: string): boolean {
  return fs.statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

/** @throws KvError KV_INVALID_ARGUMENT for a backup, which looks like a database to nobody but its owner. */
export function checkNoBackup(full: string, path: string): void {
  if (!isFile(full)) return;
  const front = new Uint8Array(BACKUP_MAGIC.length);
  try {
    const handle = fs.openSync(full, 'r');
    try {
      fs.readSync(handle, front, 0, front.length, 0);
    } finally {
      fs.closeSync(handle);
    }
  } catch {
    // What cannot be read is told when it is opened.
  }
  if (String.fromCharCode(...front) !== BACKUP_MAGIC) return;
  throw invalid(`${path} is a backup; "mangrove restore ${path} DIRECTORY" makes a database of it`);
}

function placeOf(path: string, isReading: boolean): Place {
  const full = resolve(path);
  checkNoBackup(full, path);
  if (!isFile(full) || basename(full) === DATA_FILE) {
    const directory = isFile(full) ? dirname(full) : full;
    return { storage: new NodeStorage(directory, isReading), isSingle: false, directory };
  }
  const [directory, name] = [dirname(full), basename(full)];
  const files = new NodeStorage(directory, isReading);
  return { storage: new RenamedStorage(files, (file) => file === DATA_FILE ? name : `${name}.${file}`), isSingle: true, directory };
}

function checkExists({ storage, directory }: Place, path: string): void {
  const isThere = fs.existsSync(directory) && storage.list().includes(DATA_FILE);
  if (!isThere) throw new KvError('KV_NOT_FOUND', `there is no database at ${path}`);
}

function start(place: Place, path: string, options: OpenOptions, release: () => void): Connection {
  const { engine } = checkOptions(options);
  try {
    const besideWriter = engine.readOnly && !place.isSingle;
    return new Connection(new LocalTransport(loader.loadSync(undefined), place.storage, { ...engine, besideWriter }, release));
  } catch (error) {
    const { message } = error as Error;
    switch (codeOf(error)) {
      case 'KV_CORRUPT': throw new KvError('KV_CORRUPT', `${message}; "mangrove recover" saves what can still be read`, { cause: error });
      case 'KV_NOT_FOUND': throw new KvError('KV_NOT_FOUND', `there is no database at ${path}: its creation never ended`, { cause: error });
      default: throw error;
    }
  }
}

/** What a verb that writes does with a database. */
export interface WriteAccess {
  readonly create?: boolean;
  /** If it fails before it has committed anything, a database that was made for it is removed. */
  readonly leavesNothing?: boolean;
  readonly exclusive?: boolean;
  readonly durability?: Durability;
}

/** Runs what writes, and makes durable what was committed whether it fails or not. */
export async function write<T>(path: string, access: WriteAccess, change: (store: Store) => Promise<T>): Promise<T> {
  const { create = false, exclusive = false, durability = 'strict', leavesNothing = false } = access;
  const place = placeOf(path, false);
  const wasThere = fs.existsSync(place.directory);
  const isNew = leavesNothing && !place.isSingle && !fs.existsSync(join(place.directory, DATA_FILE));
  if (create && !place.isSingle) prepareDirectory(place.directory, true);
  else checkExists(place, path);
  const release = place.isSingle ? () => {} : lockDirectorySync(place.directory, 0);
  const connection = start(place, path, { create, exclusive, durability }, release);
  let result: T;
  try {
    result = await change(new Store(connection, durability));
  } catch (error) {
    const version = isNew ? await new Store(connection, durability).json<Stats>(Op.stats).then((stats) => stats.version, () => undefined) : undefined;
    await connection.close().catch(() => undefined);
    if (version === 0) removeMade(place.directory, wasThere);
    throw error;
  }
  await connection.close();
  if (place.isSingle) removeEmptyLog(path);
  return result;
}

function removeMade(directory: string, keepsDirectory: boolean): void {
  try {
    for (const name of [DATA_FILE, LOG_FILE]) fs.rmSync(join(directory, name), { force: true });
    if (!keepsDirectory) fs.rmdirSync(directory);
  } catch {
    // What counts is why the work failed.
  }
}

function removeEmptyLog(path: string): void {
  const log = `${resolve(path)}.${LOG_FILE}`;
  if (fs.statSync(log, { throwIfNoEntry: false })?.size === 0) fs.rmSync(log);
}

/**
 * Runs what reads, and changes nothing. Others may read and write meanwhile; if a writer overwrites what is being read, it begins again with
 * the newest state, unless something was printed.
 */
export async function read<T>(path: string, work: (store: Store, output: Output) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const place = placeOf(path, true);
    checkExists(place, path);
    const output = new Output();
    try {
      const connection = start(place, path, { create: false, readOnly: true }, () => {});
      try {
        const result = await work(new Store(connection, 'strict'), output);
        output.flush();
        return result;
      } finally {
        await connection.close().catch(() => undefined);
      }
    } catch (error) {
      if (codeOf(error) !== 'KV_STALE') {
        // What came before a failure is printed too.
        output.flush();
        throw error;
      }
      if (output.hasBegun) {
        output.flush();
        throw new KvError('KV_STALE', 'a writer overwrote what was being read, so the output is incomplete; run it again, or when the writer has closed the database');
      }
      if (attempt === READ_ATTEMPTS) throw error;
    }
  }
}
