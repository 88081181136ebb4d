// What a browser's processes take, its workers and the part of IndexedDB that is not in the page included. Linux only.
import { readFileSync, readdirSync } from 'node:fs';

function parentOf(pid: string): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in brackets may have anything in it.
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}

function peakKib(pid: number): number {
  try {
    return Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

function proportionalKib(pid: number): number {
  try {
    return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** All processes that a process has started, and theirs. */
function descendants(root: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    const parent = parentOf(name);
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const found: number[] = [];
  for (let next = children.get(root) ?? []; next.length > 0; next = next.flatMap((pid) => children.get(pid) ?? []))
    found.push(...next);
  return found;
}

/** MiB of all browsers that this program has started: shared pages are counted once. */
export function browserMemory(): number {
  return descendants(process.pid).reduce((sum, pid) => sum + proportionalKib(pid), 0) / 1024;
}

/** The most MiB that one of the processes of these browsers has had resident since it started. */
export function peakOfLargestProcess(): number {
  return Math.max(...descendants(process.pid).map(peakKib)) / 1024;
}
