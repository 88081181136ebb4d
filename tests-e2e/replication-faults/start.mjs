// Starts run.ts with the servers and the browser that setup has installed.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { browserEnv, serverEnv } from '../../.ci/tools.mjs';

const run = fileURLToPath(new URL('run.ts', import.meta.url));
const { status } = spawnSync(
  process.execPath,
  ['--experimental-websocket', '--no-warnings', '--import', 'tsx', run, ...process.argv.slice(2)],
  {
    env: { ...process.env, ...browserEnv(), ...serverEnv() },
    stdio: 'inherit',
  },
);
process.exit(status ?? 1);
