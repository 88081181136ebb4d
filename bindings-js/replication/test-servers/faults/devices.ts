// What devices do while servers fail. A device is a function, so that others can take its place.
import type { Position, RemoteLog } from '../../src/remote-log.ts';
import { bytesOf } from '../support/log-contract.ts';

/** What devices were told by the servers. */
export interface Ledger {
  /** An append was acknowledged. `after`: it was on condition that the newest record was there. */
  acknowledged(key: string, position: Position, milliseconds: number, after?: Position): void;
  /** A server was not available; the device tries again. */
  failed(code: string, error: unknown): void;
}

export interface DeviceContext {
  readonly name: string;
  readonly log: RemoteLog;
  readonly ledger: Ledger;
  isOver(): boolean;
}

export type Device = (context: DeviceContext) => Promise<void>;

/** Failures that pass: a token that has expired is replaced at the next connection. */
const PASSING: ReadonlySet<string> = new Set(['KV_LOG_UNAVAILABLE', 'KV_LOG_REFUSED']);

const codeOf = (error: unknown): string => (error as { readonly code?: string }).code ?? String(error);
const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Appends numbered records, each one until it is acknowledged or the time is over. */
export const writer: Device = async ({ name, log, ledger, isOver }) => {
  for (let seq = 1; !isOver(); seq++) {
    const key = `${name}:${seq}`;
    const start = performance.now();
    while (!isOver()) {
      try {
        ledger.acknowledged(key, await log.append(bytesOf(key), { idempotencyKey: key }), performance.now() - start);
        break;
      } catch (error) {
        if (!PASSING.has(codeOf(error))) throw error;
        ledger.failed(codeOf(error), error);
        await pause(50);
      }
    }
    await pause(Math.random() * 40);
  }
};

/** Appends numbered records on condition that it has read everything. */
export const strictWriter: Device = async ({ name, log, ledger, isOver }) => {
  let after = 0;
  for (let seq = 1; !isOver(); ) {
    const key = `${name}:${seq}`;
    const start = performance.now();
    try {
      for (let records = await log.read(after, 500); records.length > 0; records = await log.read(after, 500)) {
        after = records.at(-1)?.position as Position;
        // It may be there already, after an answer that was lost.
        if (records.some(({ record }) => new TextDecoder().decode(record) === key)) seq++;
      }
      const own = `${name}:${seq}`;
      ledger.acknowledged(
        own,
        await log.append(bytesOf(own), { idempotencyKey: own, expect: after }),
        performance.now() - start,
        after,
      );
      seq++;
    } catch (error) {
      if (!PASSING.has(codeOf(error)) && codeOf(error) !== 'KV_LOG_CONFLICT') throw error;
      ledger.failed(codeOf(error), error);
      await pause(5);
    }
  }
};
