// The example docs/examples/tenants with a real server.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { programOf } from './support/nats.ts';
import { freePorts } from './support/proxy.ts';

const EXAMPLES = fileURLToPath(new URL('../../../docs/examples', import.meta.url));

/** All bytes below a folder. */
function bytesBelow(folder: string): Buffer {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Buffer.concat(files.map(({ parentPath, name }) => readFileSync(join(parentPath, name))));
}

test('tenants of one provider read their own notes, and nobody else does', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'mangrove-tenants-'));
  try {
    const [port] = await freePorts(1);
    const args = [
      '--experimental-websocket',
      '--no-warnings',
      '--import',
      'tsx',
      'tenants/main.ts',
      programOf('NATS_SERVER'),
      directory,
      String(port),
    ];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: EXAMPLES });
    assert.deepEqual(stdout.trim().split('\n'), [
      "ada's laptop reads: the secret of ada",
      "grace's laptop reads: the secret of grace",
      "ada's log has 1 record, sealed",
      "grace reads ada's log: KV_LOG_REFUSED",
      'a stranger: the issuer refuses device phone: 403',
    ]);
    const stored = bytesBelow(join(directory, 'store'));
    assert.ok(stored.includes('oplog.0.notes=20of=20ada.phone'), 'the provider has the record');
    assert.ok(!stored.includes('the secret'), 'but not what it says');
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
