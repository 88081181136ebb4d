// Appends and reads with the built drivers, in any runtime: `<runtime> runtime-main.mjs <what> <options as JSON>`.
import process from 'node:process';
import { natsLog } from '@mangrove-kv/replication-nats';
import { s3Log } from '@mangrove-kv/replication-s3';
import { KvError } from 'mangrove-kv';

const [what, options] = process.argv.slice(2);
const log = (what === 'nats' ? natsLog : s3Log)(JSON.parse(options));
let calls = 0;
const end = log.wake(() => calls++);
const first = await log.append(new Uint8Array([1, 2, 3]), { idempotencyKey: 'd:1' });
const second = await log.append(new Uint8Array([4]), { idempotencyKey: 'd:2', expect: first });
const late = await log.append(new Uint8Array([5]), { idempotencyKey: 'd:3', expect: first }).catch((error) => error);
let records = [];
while (records.length < 2) records = await log.read(0, 10);
end();
await log.close();
process.stdout.write(
  JSON.stringify({
    positions: [first, second],
    read: records.map(({ position, record }) => [position, [...record]]),
    late: [late instanceof KvError, late.code],
  }),
);
process.exit(0);
