import { readFileSync, readdirSync } from 'node:fs';

/** Chromium's processes on a profile, and their children. */
export function processesOf(directory: string): number[] {
  const processes = readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number);
  return processes.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(directory);
    } catch {
      return false;
    }
  });
}
