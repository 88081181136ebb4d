// better-sqlite3 has a binary for most machines and compiles itself on others. npm is told not to, as only this benchmark needs it.
import { spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { createRequire } from 'node:module';

const { resolve } = createRequire(import.meta.url);

function works(script) {
  return (
    spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
      cwd: import.meta.dirname,
      stdio: 'ignore',
    }).status === 0
  );
}

export function prepare(engines) {
  if (!engines.includes('better-sqlite3')) return;
  if (works("import Database from 'better-sqlite3'; new Database(':memory:')")) return;
  let directory;
  try {
    directory = dirname(resolve('better-sqlite3/package.json'));
  } catch {
    return;
  }
  process.stdout.write('bench: installing better-sqlite3 (a minute or two where it has to be compiled)\n');
  // Where it fails the run says so and goes on without.
  const { status } = spawnSync('npm', ['run', '--silent', 'install'], {
    cwd: directory,
    stdio: 'ignore',
    shell: process.platform === 'win32',
  });
  if (status !== 0) process.stderr.write('bench: better-sqlite3 could not be installed\n');
}
