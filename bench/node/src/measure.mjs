import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Operations a second, where each of them is waited for. */
export async function rate(count, operate) {
  const start = performance.now();
  await operate();
  return count / ((performance.now() - start) / 1000);
}

/** Bytes that the files of a directory take on the disk. */
export function diskBytes(directory) {
  return readdirSync(directory, { recursive: true }).reduce((bytes, name) => {
    const stat = statSync(join(directory, name));
    // Files can have holes. Windows does not count blocks.
    return bytes + (stat.isFile() ? Math.min(stat.size, stat.blocks ? stat.blocks * 512 : stat.size) : 0);
  }, 0);
}

/** How much the resident set grew at most since the call, in MiB. */
export function watchMemory() {
  globalThis.gc?.();
  const before = process.memoryUsage.rss();
  try {
    // Linux: the peak begins anew.
    writeFileSync('/proc/self/clear_refs', '5');
  } catch {
    // The peak since the process began, then.
  }
  return () => (peak() - before) / 2 ** 20;
}

function peak() {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) * 1024;
  } catch {
    return process.resourceUsage().maxRSS * 1024;
  }
}

/**
 * Milliseconds that the slowest of these calls waited while `work` ran. They run in turns, a millisecond
 * apart; one that is due while the thread is busy waits too.
 */
export async function longestWait(work, calls) {
  let longest = 0;
  let isDone = false;
  let begun;
  const hasBegun = new Promise((resolve) => (begun = resolve));
  const caller = (async () => {
    for (let nth = 0; !isDone; nth++) {
      const due = performance.now() + 1;
      await new Promise((resolve) => setTimeout(resolve, 1));
      await calls[nth % calls.length]();
      // The first two compile what they run, with nothing beside them.
      if (nth >= 2) longest = Math.max(longest, performance.now() - due);
      if (nth === 1) begun();
    }
  })();
  try {
    await Promise.race([hasBegun, caller]);
    await work();
  } finally {
    isDone = true;
    await caller;
  }
  return longest;
}
