import { readFileSync, readdirSync } from 'node:fs';

interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly command: string;
}

function allProcesses(): Process[] {
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
  return pids.flatMap((pid) => {
    try {
      // The process name, in parentheses, may contain any character.
      const [, parent] = readFileSync(`/proc/${pid}/stat`, 'utf8')
        .replace(/^.*\) /s, '')
        .split(' ');
      return { pid, parent: Number(parent), command: readFileSync(`/proc/${pid}/cmdline`, 'utf8') };
    } catch {
      return [];
    }
  });
}

/** A browser's processes on a profile, with descendants: only Chromium's name the profile. */
export function processesOf(directory: string): number[] {
  const all = allProcesses();
  const found = new Set(all.filter(({ command }) => command.includes(directory)).map(({ pid }) => pid));
  for (let before = 0; before < found.size; ) {
    before = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return [...found];
}

/** Kills processes, as a crash would. */
export function kill(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      // The process may have ended by itself in the meantime.
      if ((error as { code?: unknown }).code !== 'ESRCH') throw error;
    }
  }
}

/** Kills all processes of a browser at once; returns how many there were. */
export function killBrowser(directory: string): number {
  const pids = processesOf(directory);
  kill(pids);
  return pids.length;
}
