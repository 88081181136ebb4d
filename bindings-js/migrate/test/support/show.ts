// Values as texts that are equal if and only if structured clone takes the values for the same, in Node and in browsers.

function bytesOf(value: ArrayBuffer | ArrayBufferView): string {
  const bytes = ArrayBuffer.isView(value)
    ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
    : new Uint8Array(value);
  return [...bytes].join(' ');
}

/** The text of a value, whose Blobs are read. */
export async function show(value: unknown, within: readonly unknown[] = []): Promise<string> {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value !== 'object' || value === null) return Object.is(value, -0) ? '-0' : String(value);
  if (within.includes(value)) return `^${within.length - within.indexOf(value)}`;
  const around = [...within, value];
  const all = async (items: Iterable<unknown>): Promise<string> => {
    const texts: string[] = [];
    for (const item of items) texts.push(await show(item, around));
    return texts.join(', ');
  };
  const tag = Object.prototype.toString.call(value).slice(8, -1);
  if (tag === 'Date') return `Date(${(value as Date).getTime()})`;
  if (tag === 'RegExp') return String(value);
  if (tag === 'Map') return `Map(${await all(value as Map<unknown, unknown>)})`;
  if (tag === 'Set') return `Set(${await all(value as Set<unknown>)})`;
  if (tag === 'Blob' || tag === 'File') {
    const { type, name = '', lastModified = '' } = value as Partial<File>;
    const file = tag === 'File' ? ` ${name} ${lastModified}` : '';
    return `${tag}(${type}${file}: ${bytesOf(await (value as Blob).arrayBuffer())})`;
  }
  if (tag === 'ArrayBuffer' || ArrayBuffer.isView(value)) return `${tag}(${bytesOf(value as ArrayBuffer)})`;
  // An implementation of IndexedDB in JavaScript may have DOMExceptions of its own.
  if (value instanceof Error || tag === 'DOMException') return `${(value as Error).name}`;
  if (['Number', 'String', 'Boolean', 'BigInt'].includes(tag)) return `${tag}(${String(value.valueOf())})`;
  const properties: string[] = [];
  for (const key of Object.keys(value))
    properties.push(`${key}: ${await show((value as Record<string, unknown>)[key], around)}`);
  return Array.isArray(value) ? `[${value.length}: ${properties.join(', ')}]` : `{${properties.join(', ')}}`;
}

/** Fails unless both are the same. */
export async function same(actual: unknown, expected: unknown, what = ''): Promise<void> {
  const [found, wanted] = [await show(actual), await show(expected)];
  if (found !== wanted) throw new Error(`${what} ${found} instead of ${wanted}`);
}

/** Fails unless the promise rejects with an exception of that name. */
export async function failsWith(promise: Promise<unknown>, name: string): Promise<void> {
  const outcome = await promise.then(
    () => 'no error',
    (error: unknown) => (error as Error).name,
  );
  if (outcome !== name) throw new Error(`${outcome} instead of ${name}`);
}

/** A case of a suite that both a library and its twin pass. */
export interface Case<T> {
  readonly name: string;
  run(api: T): Promise<void>;
}

/** Runs cases one after the other; resolves to the names of all, and what failed. */
export async function runCases<T>(
  cases: readonly Case<T>[],
  api: T,
): Promise<{ readonly passed: string[]; readonly failed: string[] }> {
  const [passed, failed]: [string[], string[]] = [[], []];
  for (const { name, run } of cases) {
    try {
      await run(api);
      passed.push(name);
    } catch (error) {
      failed.push(`${name}: ${String(error)}`);
    }
  }
  return { passed, failed };
}
