// Undo by snapshots: each change takes a snapshot first, from which undo reads the old values.
import type { City, CityId, CityStore } from '../cities.ts';

/**
 * Limits the number of snapshots, since each one retains the space of everything replaced since.
 */
const MOST = 20;

interface Step {
  readonly label: string;
  readonly before: ReturnType<CityStore['keep']>;
  readonly ids: readonly CityId[];
}

export class UndoList {
  readonly #store: CityStore;
  readonly #onChange: () => void;
  readonly #steps: Step[] = [];

  constructor(store: CityStore, onChange: () => void) {
    this.#store = store;
    this.#onChange = onChange;
  }

  /** Label of the change that would be undone next. */
  get next(): string | undefined {
    return this.#steps.at(-1)?.label;
  }

  /** Runs a change that affects the cities `ids` and those whose ids it returns. */
  async run(label: string, ids: readonly CityId[], change: () => Promise<readonly CityId[]>): Promise<void> {
    const before = this.#store.keep();
    try {
      const more = await change();
      this.#steps.push({ label, before, ids: [...ids, ...more] });
    } catch (error) {
      void before.close();
      throw error;
    }
    if (this.#steps.length > MOST) void this.#steps.shift()?.before.close();
    this.#onChange();
  }

  /**
   * Restores the values that the last change's cities had before it; returns the change's label.
   */
  async undo(): Promise<string | undefined> {
    const step = this.#steps.pop();
    if (step === undefined) return undefined;
    this.#onChange();
    try {
      const old = await step.before.getMany(step.ids);
      const changes = step.ids.map((id, index): readonly [CityId, City | undefined] => [id, old[index]]);
      await this.#store.restore(changes);
      return step.label;
    } finally {
      void step.before.close();
    }
  }
}
