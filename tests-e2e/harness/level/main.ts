// Runs abstract-level's published test suite on databases in this browser.
import './node.ts';
import suite from 'abstract-level/test';
import { MangroveLevel } from '@mangrove-kv/level';
import type { MangroveLevelOptions } from '@mangrove-kv/level';
import tape from 'tape';
import { FaultyStorage } from '../../../bindings-js/kv/test/support/faulty-storage.ts';
import { runLevelSuite } from '../../../bindings-js/adapters/level/test/support/level-suite.ts';
import type { Outcome } from '../../../bindings-js/adapters/level/test/support/level-suite.ts';

/** Databases that the suite created, until they are closed. */
class Databases {
  readonly #open = new Set<MangroveLevel>();
  readonly #unused = new Set<MangroveLevel>();
  made = 0;
  mostOpen = 0;

  add(level: MangroveLevel): MangroveLevel {
    this.made++;
    this.#open.add(level);
    return level;
  }

  /**
   * The suite never closes the databases below its sublevels: hundreds, where a tab has room for
   * about a hundred. A database is closed once its sublevel was closed for a whole test, as a test
   * may reopen a sublevel halfway through.
   */
  testEnded(): void {
    for (const level of this.#open) {
      if (level.status === 'closed') this.#open.delete(level);
      else if (sublevelOf.get(level)?.status !== 'closed') this.#unused.delete(level);
      else if (this.#unused.has(level)) level.close().catch(() => undefined);
      else this.#unused.add(level);
    }
    this.mostOpen = Math.max(this.mostOpen, this.#open.size);
    document.title = `${this.made} databases, ${this.#open.size} open`;
  }
}

/** For each database, the sublevel that the suite tests in its place. */
const sublevelOf = new WeakMap<object, { readonly status: string }>();
const { sublevel } = MangroveLevel.prototype;
MangroveLevel.prototype.sublevel = function (this: MangroveLevel, name: string | string[], options?: object) {
  const made = sublevel.call(this, name, options as never);
  if (name === 'test' && !sublevelOf.has(this)) sublevelOf.set(this, made);
  return made;
} as typeof sublevel;

/** Runs in this thread, since a storage object cannot be sent to a worker. */
class LevelHere extends MangroveLevel {
  readonly #storage = new FaultyStorage();

  constructor(location: string, options: MangroveLevelOptions = {}) {
    // `storage` is inherited: hooks receive only own properties, and tests compare those.
    super(location, Object.assign(Object.create({ storage: new FaultyStorage() }) as object, options));
  }

  override _open(options: Parameters<MangroveLevel['_open']>[0]): Promise<void> {
    return super._open({ ...options, storage: this.#storage });
  }
}

export async function run(storage: 'opfs' | 'here'): Promise<Outcome & { readonly mostOpen: number }> {
  const Level = storage === 'opfs' ? MangroveLevel : LevelHere;
  const databases = new Databases();
  const make = (options?: MangroveLevelOptions): MangroveLevel =>
    databases.add(new Level(`level ${databases.made}`, options));
  const outcome = await runLevelSuite(tape, suite, make, () => databases.testEnded());
  return { ...outcome, mostOpen: databases.mostOpen };
}
