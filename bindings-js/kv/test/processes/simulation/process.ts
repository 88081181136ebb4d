// A simulated process, or one of the threads of a process, and what the handles in it share.
import type { LocalHub } from '../../../src/processes/machine.ts';
import type { Event } from '../../tabs/events.ts';
import type { End } from './connection.ts';
import type { Handle } from './handle.ts';

export class Process {
  readonly name: string;
  /** That of all threads of the process. */
  readonly pid: number;
  isAlive = true;
  isStopped = false;
  ranSince: number;
  /** By how much its clock differs. */
  clockMs = 0;
  hub: LocalHub | undefined;
  readonly handles: Handle[] = [];
  readonly ends = new Set<End>();
  /** Events that were due while it was stopped. */
  readonly deferred: Event[] = [];

  constructor(name: string, pid: number, now: number) {
    this.name = name;
    this.pid = pid;
    this.ranSince = now;
  }
}
