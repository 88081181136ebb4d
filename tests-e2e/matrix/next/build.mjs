import { execFileSync } from 'node:child_process';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const cli = fileURLToPath(import.meta.resolve('next/dist/bin/next'));
const env = { ...process.env, NEXT_TELEMETRY_DISABLED: '1' };
execFileSync(process.execPath, [cli, 'build'], { stdio: 'inherit', env });
