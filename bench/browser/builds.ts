// This build of the package beside an earlier one, in one page of Chromium:
//
//     VITE_MANGROVE_BEFORE=<dist before> npm run builds --workspace bench/browser -- --launches 8
//
// A ratio above 1 means that this build is faster. A build that is opened first may be slower than its own copy by a
// tenth for as long as the browser runs. So the builds change places from launch to launch, and the ratio is the
// geometric mean of both places' medians.
import { parseArgs } from 'node:util';
import { Browser } from './driver/browser.ts';
import { servePage } from './driver/page.ts';
import { BEFORE } from './src/peers/index.ts';
import { median } from './src/report/numbers.ts';

const middle = (list: readonly number[]): number => median(list) ?? Number.NaN;

const { values: options } = parseArgs({
  options: {
    launches: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '7' },
    records: { type: 'string', default: '50000' },
  },
});
if (BEFORE === undefined) throw new Error('VITE_MANGROVE_BEFORE has to name the dist of the earlier build');

const page = await servePage();
/** By name, the ratios and the rates of each launch, in every other one of which the builds have changed places. */
const found = new Map<string, { ratio: number; rates: readonly number[] }[]>();
try {
  for (let launch = 0; launch < Number(options.launches); launch++) {
    await using browser = await Browser.launch(page.url);
    const isSwapped = launch % 2 === 1;
    const names = ['mangrove-before', 'mangrove'];
    await browser.compareBuilds(
      isSwapped ? names.reverse() : names,
      { records: Number(options.records), rounds: Number(options.rounds) },
      ({ name, ratios, rates }) => {
        const ratio = middle(ratios) ** (isSwapped ? -1 : 1);
        found.set(name, [...(found.get(name) ?? []), { ratio, rates: isSwapped ? [...rates].reverse() : rates }]);
      },
    );
  }
} finally {
  await page.close();
}
for (const [name, launches] of found) {
  const ratios = launches.map(({ ratio }) => ratio);
  const [first = 0, second = 0] = [0, 1].map((place) => middle(ratios.filter((_, at) => at % 2 === place)));
  const [before, now] = [0, 1].map((build) =>
    Math.round(middle(launches.map(({ rates }) => rates[build] ?? 0))).toLocaleString('en-US'),
  );
  process.stdout.write(
    `${name.padEnd(44)} ${Math.sqrt(first * second).toFixed(2)} (launches ${ratios.map((ratio) => ratio.toFixed(2)).join(', ')}), ${before}/s and ${now}/s\n`,
  );
}
