// Brings a database to the schema version that `open` asks for. Few pages do, so it is a file of
// its own in the package.
//
// The version and the state of an incomplete upgrade are records of a collection, which each commit
// of an upgrade checks and changes together with the data. So an upgrade runs once, whoever begins
// it, and continues where it stopped. The engine admits one upgrading client at a time and refuses
// the requests of others meanwhile.
import { KvError } from '../base/errors.ts';
import { checkSignal, ignore } from '../base/async.ts';
import { STEP_DONE } from '../types/versions.ts';
import type { MigrationStep, Migrations, StepRun, UpgradeFunction, UpgradeProgress } from '../types/versions.ts';
import type { Database, Transaction } from '../types/index.ts';
import type { Connection } from '../wire/connection.ts';
import { Op, SchemaStanding } from '../wire/opcodes.ts';
import type { ReplyReader, RequestWriter } from '../wire/protocol.ts';
import { SCHEMA_COLLECTION } from '../wire/collection-target.ts';
import { report } from './events.ts';

/** Pause before asking again while another tab upgrades. */
const WAIT_MS = 50;
/** Units of progress per step. */
const STEP_UNITS = 1000;

/** What `open` asks for. */
export interface SchemaOptions {
  readonly version: number;
  readonly upgrade: UpgradeFunction<never, never, never> | Migrations | undefined;
  readonly onUpgrade: ((progress: UpgradeProgress) => void) | undefined;
  readonly signal: AbortSignal | undefined;
}

/** How the client's version stands to that of the database. */
interface Standing {
  readonly standing: number;
  readonly version: number;
  /** The version to which it is being upgraded; otherwise the same. */
  readonly to: number;
  readonly done: number;
  readonly total: number;
}

/** How far an upgrade in steps came, as stored. */
interface Stored {
  readonly to: number;
  /** The step to run next: the version that it leads to, and its index. */
  readonly at: readonly [version: number, step: number];
  readonly cursor: unknown;
  /** Changes whenever another client continues. */
  readonly run: string;
}

/** Another client continues the upgrade. */
class Superseded extends Error {}

function askJoin(version: number): (writer: RequestWriter) => unknown {
  return (writer) => writer.u8(Op.schemaJoin).uv(version);
}

function readStanding(reader: ReplyReader): Standing {
  return { standing: reader.u8(), version: reader.uv(), to: reader.uv(), done: reader.uv(), total: reader.uv() };
}

const askEnd = (writer: RequestWriter): unknown => writer.u8(Op.schemaEnd);

/** Throws if the standing does not allow to use the database, now or after an upgrade. */
function checkStanding({ standing, version: stored }: Standing, wanted: number): void {
  if (standing === SchemaStanding.newer) {
    throw new KvError(
      'KV_VERSION_TOO_NEW',
      `the database has schema version ${stored}, this program is written for ${wanted}; load the newest program`,
    );
  }
  if (standing === SchemaStanding.interrupted) {
    const what = `an upgrade of the database from schema version ${stored} was interrupted`;
    throw new KvError('KV_VERSION_TOO_NEW', `${what}; open it with the version that it was being upgraded to`);
  }
}

/**
 * Joins the clients of the database's version, after upgrading the database if it is older.
 * `make` returns a handle with the options of `open` except its indexes.
 */
export async function settle(
  connection: Connection,
  schema: SchemaOptions,
  make: () => Database,
): Promise<(db: Database) => void> {
  const { version, signal, onUpgrade } = schema;
  for (;;) {
    checkSignal(signal);
    const now = await connection.request(askJoin(version), readStanding);
    checkStanding(now, version);
    if (now.standing === SchemaStanding.current) return (db) => follow(connection, version, db);
    if (now.standing === SchemaStanding.waits) {
      onUpgrade?.({ from: now.version, to: now.to, done: now.done, total: now.total, step: undefined, isHere: false });
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
      continue;
    }
    try {
      await new Upgrade(connection, schema, make(), now.version).run();
    } catch (error) {
      if (!isSuperseded(error)) throw error;
    } finally {
      await connection.request(askEnd, ignore).catch(ignore);
    }
  }
}

/** As `settle`, synchronously: an upgrade that has anything to do is refused. */
export function settleSync(
  connection: Connection,
  { version, upgrade }: SchemaOptions,
  make: () => Database,
): (db: Database) => void {
  const now = connection.requestSync(askJoin(version), readStanding);
  checkStanding(now, version);
  if (now.standing !== SchemaStanding.current) {
    try {
      if (upgrade !== undefined) {
        const what = `the database has schema version ${now.version}, and upgrades are asynchronous`;
        throw new KvError('KV_SYNC_UNAVAILABLE', `${what}; open it once with open, or without upgrade`);
      }
      make().sync.collection<string, number>(SCHEMA_COLLECTION).set('version', version);
    } finally {
      connection.requestSync(askEnd, ignore);
    }
    checkStanding(connection.requestSync(askJoin(version), readStanding), version);
  }
  return (db) => follow(connection, version, db);
}

/** Another client took over, in this leader's tab or before it in another. */
function isSuperseded(error: unknown): boolean {
  return error instanceof Superseded || (error as { code?: unknown } | undefined)?.code === 'KV_VERSION_CHANGED';
}

/** Dispatches `versionchange` when the database gets another version, or begins to. */
function follow(connection: Connection, version: number, db: Database): void {
  let isTold = false;
  const look = (): void => {
    connection.request(askJoin(version), readStanding).then(({ standing, to }) => {
      const isCurrent = standing === SchemaStanding.current;
      if (!isCurrent && !isTold) report(db, db, 'versionchange', { version: to });
      isTold = !isCurrent;
    }, ignore);
  };
  connection.onWake = look;
  // A worker that was replaced does not know the version.
  connection.onForgotten = look;
}

class Upgrade {
  readonly #connection: Connection;
  readonly #schema: SchemaOptions;
  readonly #db: Database;
  readonly #from: number;
  readonly #run = Math.random().toString(36).slice(2);
  /** Version and state as of the last commit seen or made. */
  #version: number;
  #stored: Stored | undefined;

  constructor(connection: Connection, schema: SchemaOptions, db: Database, from: number) {
    this.#connection = connection;
    this.#schema = schema;
    this.#db = db;
    this.#from = from;
    this.#version = from;
  }

  async run(): Promise<void> {
    const { upgrade, version } = this.#schema;
    const [stored, state] = await this.#db
      .collection<string, unknown>(SCHEMA_COLLECTION)
      .getMany(['version', 'upgrade']);
    if ((stored ?? 0) !== this.#from) throw new Superseded();
    this.#stored = state as Stored | undefined;
    this.#progress(0, 0);
    if (typeof upgrade === 'object') return this.#migrate(upgrade);
    if (this.#stored !== undefined) {
      const what = `an upgrade to schema version ${this.#stored.to} in steps was interrupted at ${this.#stored.at.join('.')}`;
      throw new KvError('KV_INVALID_ARGUMENT', `${what}; open the database with the migrations that began it`);
    }
    await this.#commit(async (tx) => {
      const { signal } = this.#schema;
      const progress = (done: number, total = 0): void => this.#progress(done, total);
      const collection: Database['collection'] = (name, options) => this.#db.collection(name, options);
      const run = upgrade as UpgradeFunction<unknown, unknown> | undefined;
      await run?.(tx as never, this.#from, { to: version, signal, progress, collection });
      return { version, stored: undefined };
    }, 'strict');
  }

  async #migrate({ steps }: Migrations): Promise<void> {
    const { version: to } = this.#schema;
    const versions = [...steps.keys()].filter((each) => each > this.#from && each <= to).sort((a, b) => a - b);
    const list = versions.flatMap((version) => steps.get(version)!.map((step, index) => ({ version, index, step })));
    const [version, index] = this.#stored?.at ?? [0, 0];
    const first =
      this.#stored === undefined ? 0 : list.findIndex((each) => each.version === version && each.index === index);
    if (first < 0) {
      const what = `an interrupted upgrade stopped at step ${index} of version ${version}, which the migrations lack`;
      throw new KvError('KV_INVALID_ARGUMENT', `${what}; open the database with the migrations that began it`);
    }
    for (const [at, { version, index, step }] of list.entries()) {
      if (at < first) continue;
      const next = list[at + 1];
      const cursor = at === first ? this.#stored?.cursor : undefined;
      const progress = (done: number, total: number): void => {
        this.#progress(
          (at + Math.min(total > 0 ? done / total : 0, 1)) * STEP_UNITS,
          list.length * STEP_UNITS,
          step.name,
        );
      };
      progress(0, 0);
      await this.#step(
        step,
        cursor,
        progress,
        [version, index],
        next?.version === version ? [version, index + 1] : undefined,
      );
    }
    if (this.#version < to) await this.#commit(async () => ({ version: to, stored: undefined }), 'strict');
  }

  /** Runs a step; `next` is the one after it, if that leads to the same version. */
  async #step(
    step: MigrationStep,
    cursor: unknown,
    progress: StepRun['progress'],
    at: Stored['at'],
    next: Stored['at'] | undefined,
  ): Promise<void> {
    const { version: to, signal } = this.#schema;
    let isDone = false;
    // The version is reached with the last of its steps.
    const done =
      next === undefined
        ? { version: at[0], stored: undefined }
        : { version: undefined, stored: { to, at: next, cursor: undefined } };
    const slice = async (work: (tx: Transaction) => Promise<unknown>): Promise<unknown> => {
      let result: unknown;
      await this.#commit(async (tx) => {
        result = await work(tx);
        return result === STEP_DONE ? done : { version: undefined, stored: { to, at, cursor: result } };
      }, 'relaxed');
      isDone = result === STEP_DONE;
      return result;
    };
    await step.apply({ db: this.#db, cursor, signal, progress, slice });
    if (!isDone) await slice(async () => STEP_DONE);
    if (next === undefined) await this.#db.flush();
  }

  /** Commits `work` with the version and state that it returns; no version leaves it as it is. */
  async #commit(
    work: (tx: Transaction) => Promise<{ version: number | undefined; stored: Omit<Stored, 'run'> | undefined }>,
    durability: 'strict' | 'relaxed',
  ): Promise<void> {
    const options = { timeout: Infinity, maxRetries: Infinity, durability, signal: this.#schema.signal };
    const after = await this.#db.transaction(async (tx) => {
      const schema = tx.collection<string, unknown, unknown>(SCHEMA_COLLECTION);
      const [version, state] = await schema.getMany(['version', 'upgrade']);
      // Serializable: another client's commit in between fails this one.
      if ((version ?? 0) !== this.#version || (state as Stored | undefined)?.run !== this.#stored?.run)
        throw new Superseded();
      const next = await work(tx as unknown as Transaction);
      const stored = next.stored && { ...next.stored, run: this.#run };
      if (next.version !== undefined) await schema.set('version', next.version);
      if (stored !== undefined) await schema.set('upgrade', stored);
      else await schema.delete('upgrade');
      return { version: next.version ?? this.#version, stored };
    }, options);
    this.#version = after.version;
    this.#stored = after.stored;
  }

  #progress(done: number, total: number, step?: string): void {
    const { onUpgrade, version: to } = this.#schema;
    const [whole, all] = [Math.max(0, Math.floor(done)), Math.max(0, Math.ceil(total))];
    this.#connection.post((writer) => writer.u8(Op.schemaProgress).uv(whole).uv(all), ignore);
    onUpgrade?.({ from: this.#from, to, done: whole, total: all, step, isHere: true });
  }
}
