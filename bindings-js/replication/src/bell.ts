/** A signal that can be raised and waited for. */
export class Bell {
  #isRung = false;
  #wake: (() => void) | undefined;

  ring(): void {
    this.#isRung = true;
    this.#wake?.();
  }

  /** Resolves when it was rung, or after a time; to whether it was rung. */
  async wait(timeoutMs: number): Promise<boolean> {
    if (!this.#isRung) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        (timer as { unref?: () => void }).unref?.();
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    const isRung = this.#isRung;
    this.#isRung = false;
    this.#wake = undefined;
    return isRung;
  }
}
