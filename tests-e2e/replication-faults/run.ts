// Lets servers of replication fail, disturbs devices that write, and checks what is left:
//
//     npm run replication:faults -- --seconds 120 --seed 1
//
// The log is in NATS, with `--s3` in a bucket. `--sealed`: devices seal their records, and the servers
// lie. `--losses`: the servers lose what they have acknowledged. `--old` starts nats-server 2.9.10, which
// loses records, and `--mistake NAME` lets one device do something wrong: a harness that finds nothing
// there has no teeth. Exits with 1 if something that was acknowledged is lost, or anything else is wrong.
// See docs/TESTING.md.
import process from 'node:process';
import { parseArgs } from 'node:util';
import { runFaults } from '../../bindings-js/replication/test-servers/faults/harness.ts';
import { MISTAKES } from '../../bindings-js/replication/test-servers/faults/replica.ts';
import { startTabs } from './tabs.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    s3: { type: 'boolean', default: false },
    sealed: { type: 'boolean', default: false },
    losses: { type: 'boolean', default: false },
    old: { type: 'boolean', default: false },
    mistake: { type: 'string' },
    /** Only these, separated by commas. */
    faults: { type: 'string' },
    /** How many devices are processes, and how many are tabs of Chromium; the first of these has two tabs. */
    processes: { type: 'string', default: '3' },
    browsers: { type: 'string', default: '2' },
    verbose: { type: 'boolean', default: false },
  },
});

const mistake = MISTAKES.find((name) => name === values.mistake);
if (mistake !== values.mistake) throw new Error(`there is no mistake ${values.mistake}, but ${MISTAKES.join(', ')}`);
const wrong = await runFaults({
  seconds: Number(values.seconds),
  seed: Number(values.seed),
  isS3: values.s3,
  isOld: values.old,
  isSealed: values.sealed,
  areLosses: values.losses,
  mistake,
  faults: values.faults?.split(','),
  processes: Number(values.processes),
  startTabs: (fleet) => startTabs(Number(values.browsers), fleet),
  isVerbose: values.verbose,
});
process.exit(wrong.length > 0 ? 1 : 0);
