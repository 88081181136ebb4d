// The published test suite of abstract-level, in a browser.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

/**
 * Number of assertions, lower where the engine runs in a worker, without `getSync`. The suite skips
 * features that a database does not claim, so losing a feature would lower the number.
 */
for (const [storage, assertions] of [
  ['opfs', 4708],
  ['here', 5168],
] as const) {
  test(`passes the suite of abstract-level, ${storage}`, { tag: storage === 'opfs' ? '@long' : [] }, async ({
    browserName,
    profile,
  }) => {
    // Some thousand tests, each with its own database, on machines of any speed. In Firefox a
    // worker takes three times as long to start.
    test.setTimeout(browserName === 'firefox' ? 900_000 : 240_000);
    const page = await (await profile.launch()).newPage();
    await page.goto(HARNESS_URL);
    const { passed, failed, supports, mostOpen } = await page.evaluate(
      (storage) => window.runLevelSuite(storage),
      storage,
    );
    expect(failed).toEqual([]);
    expect(supports).toMatchObject({ implicitSnapshots: true, explicitSnapshots: true, getSync: storage === 'here' });
    expect(passed).toBe(assertions);
    // A tab has room for about a hundred databases.
    expect(mostOpen).toBeLessThan(50);
  });
}
