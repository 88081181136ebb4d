// Shrinks a failing schedule for as long as it still fails.

interface Shrinkable<F> {
  readonly seed: number;
  readonly faults: F;
  readonly actions: readonly unknown[];
}

export async function shrink<F extends object, P extends Shrinkable<F>>(
  plan: P,
  noFaults: F,
  fails: (plan: P) => boolean | Promise<boolean>,
): Promise<P> {
  let least = plan;
  const attempt = async (other: P): Promise<void> => {
    // Removing a fault or an action changes everything after it, so the failure may show only under
    // another seed.
    for (let i = 0; i < 8; i++) {
      const tried = i === 0 ? other : { ...other, seed: least.seed + i * 1_000_003 };
      if (!(await fails(tried))) continue;
      least = tried;
      return;
    }
  };
  for (let before: P | undefined; before !== least; ) {
    before = least;
    for (const fault of Object.keys(noFaults) as (keyof F)[]) {
      if (least.faults[fault] !== noFaults[fault])
        await attempt({ ...least, faults: { ...least.faults, [fault]: noFaults[fault] } });
    }
    for (let i = least.actions.length - 1; i >= 0; i--) {
      await attempt({ ...least, actions: least.actions.filter((_, at) => at !== i) });
    }
  }
  return least;
}
