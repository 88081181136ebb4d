// Runs the test suite that abstract-level publishes for its implementations, with a `tape` from
// anywhere.
import type { MangroveLevel } from '@mangrove-kv/level';
import type { MangroveLevelOptions } from '@mangrove-kv/level';

/** The part of tape's interface that is used. */
export interface Tape {
  createHarness(): Tape;
  createStream(options: { objectMode: true }): {
    on(event: 'data', listener: (result: Result) => void): void;
    on(event: 'end', listener: () => void): void;
  };
}
interface Result {
  readonly type: string;
  readonly ok?: boolean;
  readonly name: string;
  readonly error?: unknown;
}
export type Suite = (options: { test: Tape; factory: (options?: MangroveLevelOptions) => MangroveLevel }) => void;

export interface Outcome {
  readonly passed: number;
  readonly failed: string[];
  /** Features that the databases declare, which decide what the suite tests. */
  readonly supports: Record<string, unknown>;
}

/** `onTestEnd` is called between two tests. */
export function runLevelSuite(
  tape: Tape,
  suite: Suite,
  make: (options: MangroveLevelOptions | undefined) => MangroveLevel,
  onTestEnd?: () => void,
): Promise<Outcome> {
  const test = tape.createHarness();
  const results = test.createStream({ objectMode: true });
  let supports = {};
  const factory = (options?: MangroveLevelOptions): MangroveLevel => {
    const level = make(options);
    supports = level.supports;
    return level;
  };
  suite({ test, factory });
  const failed: string[] = [];
  let current = '';
  let passed = 0;
  return new Promise((resolve) => {
    results.on('data', ({ type, ok, name, error }) => {
      if (type === 'test') current = name;
      if (type === 'end') onTestEnd?.();
      if (type !== 'assert') return;
      if (ok) passed++;
      else failed.push(`${current}: ${name}: ${String(error)}`);
    });
    results.on('end', () => resolve({ passed, failed, supports: { ...supports } }));
  });
}
