// What a request says, from the function that writes it.
import type { RequestWriter } from '../../src/wire/protocol.ts';

export type Write = (writer: RequestWriter) => unknown;

/** The first byte of a request and its first number, which is the id of what it opens or uses; of a scan, also the view. */
export function headOf(write: Write): { readonly op: number; readonly numbers: readonly number[] } {
  let op: number | undefined;
  const numbers: number[] = [];
  const recorder: unknown = new Proxy(
    {},
    {
      get: (_, name) => (value: unknown) => {
        if (name === 'u8') op ??= value as number;
        if (name === 'uv') numbers.push(value as number);
        return recorder;
      },
    },
  );
  write(recorder as RequestWriter);
  return { op: op!, numbers };
}
