// What something waits for, and since when: for runs that do not end.

export class Waits {
  readonly #open = new Set<{ readonly what: string; readonly since: number }>();

  async for<T>(what: string, promise: Promise<T>): Promise<T> {
    const wait = { what, since: performance.now() };
    this.#open.add(wait);
    try {
      return await promise;
    } finally {
      this.#open.delete(wait);
    }
  }

  toString(): string {
    return (
      [...this.#open]
        .map(({ what, since }) => `${what} (${Math.round((performance.now() - since) / 1000)} s)`)
        .join(', ') || 'nothing'
    );
  }
}
