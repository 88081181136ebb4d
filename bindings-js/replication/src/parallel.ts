/** Calls `run` for all items, at most `limit` at a time, and returns the results in order. After a failure it begins no more. */
export async function inParallel<T, R>(limit: number, items: readonly T[], run: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = new Array(items.length);
  let next = 0;
  const work = async (): Promise<void> => {
    for (let at = next++; at < items.length; at = next++) results[at] = await run(items[at] as T);
  };
  await Promise.all(
    Array.from({ length: Math.min(limit, items.length) }, () =>
      work().catch((error: unknown) => {
        next = items.length;
        throw error;
      }),
    ),
  );
  return results;
}
