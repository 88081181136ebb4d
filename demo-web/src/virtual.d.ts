declare module 'virtual:peers' {
  /** Absent where the benchmark is not installed. */
  export const mountBench: ((element: HTMLElement, options: object) => unknown) | undefined;
}
