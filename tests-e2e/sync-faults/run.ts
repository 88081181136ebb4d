// Lets servers of sync fail, disturbs devices that write, and checks what is left:
//
//     npm run sync:faults -- --seconds 120 --seed 1
//
// `--old` starts nats-server 2.9.10, which loses records: a harness that finds nothing there has no
// teeth. Exits with 1 if something that was acknowledged is lost, or anything else is wrong. See
// docs/TESTING.md.
import process from 'node:process';
import { parseArgs } from 'node:util';
import { FAULTS } from '../../bindings-js/test-sync/faults/faults.ts';
import { runFaults } from '../../bindings-js/test-sync/faults/harness.ts';
import { startTabs } from './tabs.ts';

const { values } = parseArgs({ options: {
  seconds: { type: 'string', default: '60' },
  seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  old: { type: 'boolean', default: false },
  /** Only these, separated by commas. */
  faults: { type: 'string', default: Object.keys(FAULTS).join() },
  /** How many devices are processes, and how many are tabs of Chromium; the first of these has two tabs. */
  processes: { type: 'string', default: '3' },
  browsers: { type: 'string', default: '2' },
  verbose: { type: 'boolean', default: false },
} });

const wrong = await runFaults({
  seconds: Number(values.seconds), seed: Number(values.seed), isOld: values.old, faults: values.faults.split(','),
  processes: Number(values.processes), startTabs: (fleet) => startTabs(Number(values.browsers), fleet), isVerbose: values.verbose,
});
process.exit(wrong.length > 0 ? 1 : 0);
