// Some schedules of simulated processes that share a database. `npm run test:processes` runs many.
import { strict as assert } from 'node:assert';
import { describe, test } from 'node:test';
import { planOf, run } from './simulation/schedule.ts';

const SCHEDULES = 2000;

describe('simulated processes that share a database', () => {
  test('keep what they acknowledge, and all are served', async () => {
    for (let seed = 1; seed <= SCHEDULES; seed++) {
      const { violation } = await run(planOf(seed));
      assert.equal(violation, undefined, `MANGROVE_PROCESSES_SEED=${seed} npm run test:processes`);
    }
  });
});
