// The suite that abstract-level publishes, in a browser.
import { HARNESS_URL } from '../browser.ts';
import { expect, test } from '../persistent.ts';

/** Without `getSync` where the engine runs in a worker. A feature that a database does not claim is not tested: the number would fall. */
for (const [storage, assertions] of [['opfs', 4708], ['here', 5168]] as const) {
  test(`the suite of abstract-level, ${storage}`, { tag: storage === 'opfs' ? '@long' : [] }, async ({ browserName, profile }) => {
    // Some thousand tests with a database each, on machines of any speed. A worker takes three times as long to start in Firefox.
    test.setTimeout(browserName === 'firefox' ? 900_000 : 240_000);
    const page = await (await profile.launch()).newPage();
    await page.goto(HARNESS_URL);
    const { passed, failed, supports, mostOpen } = await page.evaluate((storage) => window.runLevelSuite(storage), storage);
    expect(failed).toEqual([]);
    expect(supports).toMatchObject({ implicitSnapshots: true, explicitSnapshots: true, getSync: storage === 'here' });
    expect(passed).toBe(assertions);
    // A tab has room for about a hundred.
    expect(mostOpen).toBeLessThan(50);
  });
}
