// Who shares a database outside browsers (docs/SHARING.md).

/** The process whose handle executes the calls of all. */
export interface LeaderInfo {
  readonly pid: number;
  /** When it began to lead, as Unix time in milliseconds. */
  readonly since: number;
}

/** A handle that another one leads. */
export interface ClientInfo {
  readonly pid: number;
  /** The process's title, as `process.title` had it when it connected. */
  readonly title: string;
  /** When it connected to the one that leads now, as Unix time in milliseconds. */
  readonly since: number;
}
