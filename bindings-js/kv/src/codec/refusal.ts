// Why a key or value cannot be encoded, and where in it the reason is. The path is assembled while
// the refusal propagates.

const MAX_PATH = 200;

/** Thrown inside a codec, which turns it into a KvError for the caller. */
export class Refusal {
  path = '';
  readonly what: string;
  readonly cause: unknown;

  constructor(what: string, cause?: unknown) {
    this.what = what;
    this.cause = cause;
  }

  /** The path, truncated to a readable length. */
  get where(): string {
    return this.path.length > MAX_PATH ? `${this.path.slice(0, MAX_PATH)}…` : this.path;
  }
}

/**
 * Prepends a step to the path of a refusal, for rethrowing. Any other error is returned as it is.
 */
export function within(step: string, error: unknown): unknown {
  if (error instanceof Refusal) error.path = step + error.path;
  return error;
}

/** Name of an object's class; empty if there is none. */
export function classNameOf(value: object): string {
  const prototype = Object.getPrototypeOf(value) as object | null;
  const made: unknown =
    prototype !== null && Object.hasOwn(prototype, 'constructor') ? prototype.constructor : undefined;
  return typeof made === 'function' ? made.name : '';
}

/** What a value is, with its article. */
export function describe(value: unknown): string {
  if (value === null || value === undefined || Number.isNaN(value)) return String(value);
  const name = typeof value === 'object' ? classNameOf(value) : '';
  if (name !== '' && name !== 'Object') return `an instance of ${name}`;
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
