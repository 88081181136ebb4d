// Shrinks a failing schedule for as long as it still fails.
import { run } from './schedule.ts';
import type { Plan } from './schedule.ts';
import { noFaults } from './world.ts';
import type { Faults } from './world.ts';

export function shrink(plan: Plan): Plan {
  let least = plan;
  for (let before: Plan | undefined; before !== least; ) {
    before = least;
    for (const fault of Object.keys(noFaults) as (keyof Faults)[]) {
      if (least.faults[fault] !== noFaults[fault])
        least = smaller(least, { ...least, faults: { ...least.faults, [fault]: noFaults[fault] } });
    }
    for (let i = least.actions.length - 1; i >= 0; i--) {
      least = smaller(least, { ...least, actions: least.actions.filter((_, at) => at !== i) });
    }
  }
  return least;
}

function smaller(plan: Plan, other: Plan): Plan {
  // Removing a fault or an action changes everything after it, so the failure may show only under
  // another seed.
  for (let i = 0; i < 8; i++) {
    const tried = i === 0 ? other : { ...other, seed: plan.seed + i * 1_000_003 };
    if (run(tried).violation !== undefined) return tried;
  }
  return plan;
}
