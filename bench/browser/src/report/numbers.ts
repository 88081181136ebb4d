import type { Unit } from '../meter.ts';

export function median(values: readonly number[]): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  if (sorted.length === 0) return undefined;
  return (
    ((sorted[Math.floor((sorted.length - 1) / 2)] as number) + (sorted[Math.floor(sorted.length / 2)] as number)) / 2
  );
}

/** With as many digits as tell something. */
export function short(value: number): string {
  if (value === 0) return '0';
  if (value < 0) return `-${short(-value)}`;
  if (value >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

export const isRate = (unit: Unit): boolean => unit === '/s';

export function best(unit: Unit, values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  if (known.length === 0) return undefined;
  return isRate(unit) ? Math.max(...known) : Math.min(...known);
}

/** How many times as good as `other`, above 1 if better. */
export function times(unit: Unit, value: number, other: number): number {
  return isRate(unit) ? value / other : other / value;
}

/** Browsers do not report shorter tasks of the main thread. */
export const LONG_TASK = 50;
export const isTaskRow = (name: string): boolean => name.startsWith('longest task');

export function cell(name: string, unit: Unit, value: number): string {
  if (isTaskRow(name) && value === 0) return `< ${LONG_TASK} ms`;
  return `${short(value)} ${unit}`;
}
