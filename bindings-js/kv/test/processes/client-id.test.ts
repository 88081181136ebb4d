import { strict as assert } from 'node:assert';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { describe, test } from 'node:test';
import { mayLive, newClientId } from '../../src/processes/client-id.ts';

/** The id of a client with other parts: realm, process, its start. */
function change(id: string, change: (parts: string[]) => void): string {
  const parts = id.split('.');
  change(parts);
  return parts.join('.');
}

describe('the id of a client', () => {
  test('is of its own', () => {
    assert.notEqual(newClientId(), newClientId());
  });

  test('says that its process runs', () => {
    assert.equal(mayLive(newClientId()), true);
  });

  test('says that its process has ended, but not of another machine', async () => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
    const id = change(newClientId(), (parts) => {
      parts[1] = String(child.pid);
      // Not known to the one that looks.
      parts[2] = '';
    });
    assert.equal(mayLive(id), true);
    const elsewhere = change(id, (parts) => {
      parts[0] = 'elsewhere';
    });
    const somewhere = change(id, (parts) => {
      parts[0] = '';
    });
    child.kill('SIGKILL');
    await once(child, 'exit');
    assert.equal(mayLive(id), false);
    assert.equal(mayLive(elsewhere), true);
    assert.equal(mayLive(somewhere), true);
  });

  test('is not that of a later process with the same number', { skip: process.platform !== 'linux' }, () => {
    const id = change(newClientId(), (parts) => {
      assert.match(parts[2] as string, /^\d+$/);
      parts[2] = '1';
    });
    assert.equal(mayLive(id), false);
  });

  test('of another kind is not known to have ended', () => {
    assert.equal(mayLive('client'), true);
  });
});
