// Two tabs, told what to do from outside: one builds an index, the other waits for its calls.
import type { Figure } from '../meter.ts';
import { expect } from './stage.ts';
import { withTabs, within } from './tabs.ts';
import type { Tab, TabOptions } from './tabs.ts';

/** Some stores build slowly, and a busy machine makes them slower. */
const BUILD_PATIENCE = 300_000;

const ROWS = {
  reads: 'longest wait for a query in another tab during a build',
  writes: 'longest wait for a durable put in another tab during a build',
} as const;

/** The longest waits of a tab that reads by an index and writes while another adds an index to `rows` rows. */
export async function buildBeside(options: TabOptions, rows: number): Promise<Figure[]> {
  const { name } = options;
  try {
    return await withTabs({ ...options, isIndexed: true }, 2, async ([builder, other]) => {
      const [first, second] = [builder as Tab, other as Tab];
      await within(BUILD_PATIENCE, 'the load', first.call('loadIndexed', rows));
      const calling = second.call('callMeanwhile', name, rows).then((waits) => {
        // The build may be waiting for its calls.
        if (waits.error !== undefined) throw new Error(`the other tab: ${waits.error}`);
        return waits;
      });
      const [entries, waits] = await within(
        BUILD_PATIENCE,
        'the build',
        Promise.all([first.call('build', name), calling]),
      );
      expect(entries === rows, `${entries} entries in the new index`);
      expect(waits.rounds > 0, 'no call during the build');
      return [
        { name: ROWS.reads, unit: 'ms', value: waits.reads },
        { name: ROWS.writes, unit: 'ms', value: waits.writes },
      ];
    });
  } catch (error) {
    const reason = (error as Error).message.split('\n')[0] as string;
    return Object.values(ROWS).map((row) => ({ name: row, unit: 'ms', error: reason }));
  }
}
