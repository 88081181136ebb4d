// A clock of a device that is wrong: `Date.now` and `new Date()` of this thread.
const RealDate = Date;
let offset = 0;

class WrongDate extends RealDate {
  constructor(...args: [] | [number | string]) {
    if (args.length === 0) super(WrongDate.now());
    else super(...(args as [number]));
  }

  static override now(): number {
    return RealDate.now() + offset;
  }
}

/** Sets by how many milliseconds the clock is wrong from here on; it may jump. */
export function setClock(milliseconds: number): void {
  offset = milliseconds;
  globalThis.Date = WrongDate as DateConstructor;
}
