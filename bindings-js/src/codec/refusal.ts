// Why a key or a value has no stored form, and where in it that is. The path is put together while the refusal goes up.

const MAX_PATH = 200;

/** What a codec throws inside; what it lets out is a KvError. */
export class Refusal {
  path = '';
  readonly what: string;
  readonly cause: unknown;

  constructor(what: string, cause?: unknown) {
    this.what = what;
    this.cause = cause;
  }

  /** The path, of bearable length. */
  get where(): string {
    return this.path.length > MAX_PATH ? `${this.path.slice(0, MAX_PATH)}…` : this.path;
  }
}

/** An error that left a part, to throw on. What is no refusal stays as it is. */
export function within(step: string, error: unknown): unknown {
  if (error instanceof Refusal) error.path = step + error.path;
  return error;
}

/** The name of the class of an object; empty if there is none. */
export function classNameOf(value: object): string {
  const prototype = Object.getPrototypeOf(value) as object | null;
  const made: unknown = prototype !== null && Object.hasOwn(prototype, 'constructor') ? prototype.constructor : undefined;
  return typeof made === 'function' ? made.name : '';
}

/** What something is, with its article. */
export function describe(value: unknown): string {
  if (value === null || value === undefined || Number.isNaN(value)) return String(value);
  const name = typeof value === 'object' ? classNameOf(value) : '';
  if (name !== '' && name !== 'Object') return `an instance of ${name}`;
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
