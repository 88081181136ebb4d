/** Resolves when a condition holds. */
export async function until(condition: () => unknown): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}
