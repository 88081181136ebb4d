// Starts a benchmark with the servers that setup has built: `node start.mjs run.ts --rounds 1`.
import { spawnSync } from 'node:child_process';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { serverEnv } from '../../.ci/tools.mjs';

const [script, ...args] = process.argv.slice(2);
const { status } = spawnSync(
  process.execPath,
  [
    '--experimental-websocket',
    '--no-warnings',
    '--import',
    'tsx',
    fileURLToPath(new URL(script, import.meta.url)),
    ...args,
  ],
  {
    env: { ...process.env, ...serverEnv() },
    stdio: 'inherit',
  },
);
process.exit(status ?? 1);
