// Runs the suite that abstract-level publishes over databases of this browser.
import './node.ts';
import suite from 'abstract-level/test';
import { MangroveLevel } from 'mangrove-kv/level';
import type { MangroveLevelOptions } from 'mangrove-kv/level';
import tape from 'tape';
import { FaultyStorage } from '../../../bindings-js/test/support/faulty-storage.ts';
import { runLevelSuite } from '../../../bindings-js/test/support/level-suite.ts';
import type { Outcome } from '../../../bindings-js/test/support/level-suite.ts';

/** What the suite made, until it is closed. */
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
   * The suite never closes what is below its sublevels: hundreds of databases, where a tab has room for about a hundred. They are closed when
   * the sublevel was closed for a whole test, in the middle of which it may be opened again.
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

/** The sublevel that the suite tests instead of a database. */
const sublevelOf = new WeakMap<object, { readonly status: string }>();
const { sublevel } = MangroveLevel.prototype;
MangroveLevel.prototype.sublevel = function (this: MangroveLevel, name: string | string[], options?: object) {
  const made = sublevel.call(this, name, options as never);
  if (name === 'test' && !sublevelOf.has(this)) sublevelOf.set(this, made);
  return made;
} as typeof sublevel;

/** In this thread, as a storage object cannot go to a worker. */
class LevelHere extends MangroveLevel {
  readonly #storage = new FaultyStorage();

  constructor(location: string, options: MangroveLevelOptions = {}) {
    // Inherited, as tests compare the options that hooks are given, and those are of an object's own.
    super(location, Object.assign(Object.create({ storage: new FaultyStorage() }) as object, options));
  }

  override _open(options: Parameters<MangroveLevel['_open']>[0]): Promise<void> {
    return super._open({ ...options, storage: this.#storage });
  }
}

export async function run(storage: 'opfs' | 'here'): Promise<Outcome & { readonly mostOpen: number }> {
  const Level = storage === 'opfs' ? MangroveLevel : LevelHere;
  const databases = new Databases();
  const make = (options?: MangroveLevelOptions): MangroveLevel => databases.add(new Level(`level ${databases.made}`, options));
  const outcome = await runLevelSuite(tape, suite, make, () => databases.testEnded());
  return { ...outcome, mostOpen: databases.mostOpen };
}
