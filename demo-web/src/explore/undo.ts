// Undoing by snapshots: before each change the state is kept, and undoing reads from it what was there.
import type { City, CityKey, CityStore } from '../cities.ts';

/** A snapshot keeps the space of what was replaced since, so only so many are kept. */
const MOST = 20;

interface Step {
  readonly label: string;
  readonly before: ReturnType<CityStore['keep']>;
  readonly keys: readonly CityKey[];
}

export class UndoList {
  readonly #store: CityStore;
  readonly #onChange: () => void;
  readonly #steps: Step[] = [];

  constructor(store: CityStore, onChange: () => void) {
    this.#store = store;
    this.#onChange = onChange;
  }

  /** What would be undone next. */
  get next(): string | undefined {
    return this.#steps.at(-1)?.label;
  }

  /** Makes a change that touches these cities, with those that it gives. */
  async run(label: string, keys: readonly CityKey[], change: () => Promise<readonly CityKey[]>): Promise<void> {
    const before = this.#store.keep();
    try {
      const more = await change();
      this.#steps.push({ label, before, keys: [...keys, ...more] });
    } catch (error) {
      void before.close();
      throw error;
    }
    if (this.#steps.length > MOST) void this.#steps.shift()?.before.close();
    this.#onChange();
  }

  /** Gives the cities of the last change the values that they had before it; tells what was undone. */
  async undo(): Promise<string | undefined> {
    const step = this.#steps.pop();
    if (step === undefined) return undefined;
    this.#onChange();
    try {
      const old = await step.before.getMany(step.keys);
      const changes = step.keys.map((key, index): readonly [CityKey, City | undefined] => [key, old[index]]);
      await this.#store.restore(changes);
      return step.label;
    } finally {
      void step.before.close();
    }
  }
}
