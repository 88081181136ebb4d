// Checks whether the files of open handles still exist. When a browser removes a site's data, open
// handles keep working: writes are lost without an error, and in Chromium closing a handle never
// returns. So the check runs after writes, and before any handle is closed.
import { KvError } from '../base/errors.ts';
import { within } from './deadline.ts';

/** `FileSystemSyncAccessHandle`, which is missing from the types for windows. */
export interface AccessHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  flush(): void;
  getSize(): number;
  truncate(size: number): void;
  close(): void;
}

/** Time from the first write after a check to the next check. */
const LOOK_AFTER_MS = 1000;
/** Without an answer in this time, the files are assumed to exist. */
const LOOK_MS = 5000;
/**
 * The database's random id, in the superblock that is written first. It distinguishes a new file of
 * the same name from the old one.
 */
const ID_AT = 4096 + 16;
const ID_BYTES = 16;

export class Presence {
  /** Called once, when the files are gone. */
  onLost: ((error: KvError) => void) | undefined;
  readonly #parent: FileSystemDirectoryHandle;
  readonly #name: string;
  readonly #file: string;
  readonly #handle: AccessHandle;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isLost = false;
  #leaving: Promise<boolean> | undefined;
  /**
   * Resolves when every handle passed to `letGo` is closed, or left open because its file is gone.
   */
  closing: Promise<void> | undefined;

  /** Watches the database `name`, whose `file` in `parent` is open as `handle`. */
  constructor(parent: FileSystemDirectoryHandle, name: string, file: string, handle: AccessHandle) {
    this.#parent = parent;
    this.#name = name;
    this.#file = file;
    this.#handle = handle;
  }

  /** Schedules a check, because something is written. */
  touched(): void {
    if (this.#isLost || this.#leaving !== undefined) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#look();
    }, LOOK_AFTER_MS);
  }

  /** Closes a handle, unless its file is gone: then only the end of the worker frees it. */
  letGo(handle: AccessHandle): void {
    clearTimeout(this.#timer);
    this.#leaving ??= this.#look();
    const closed = this.#leaving.then((isThere) => {
      if (isThere) handle.close();
    });
    this.closing = Promise.all([this.closing, closed]).then(() => undefined);
  }

  async #look(): Promise<boolean> {
    const isThere = !this.#isLost && await within(this.#isThere(), LOOK_MS, 'looking for the files').catch(() => true);
    if (isThere || this.#isLost) return isThere;
    this.#isLost = true;
    this.onLost?.(new KvError(
      'KV_EVICTED',
      `the files of ${this.#name} were removed by the browser or the user while it was open; everything written since is lost; open it again to start over`,
    ));
    return false;
  }

  async #isThere(): Promise<boolean> {
    let stored: Uint8Array;
    try {
      const file = await (await this.#parent.getFileHandle(this.#file)).getFile();
      stored = new Uint8Array(await file.slice(ID_AT, ID_AT + ID_BYTES).arrayBuffer());
    } catch (error) {
      // Any other failure proves nothing.
      return (error as { name?: unknown } | null)?.name !== 'NotFoundError';
    }
    if (this.#handle.getSize() < ID_AT + ID_BYTES) return true;
    const own = new Uint8Array(ID_BYTES);
    this.#handle.read(own, { at: ID_AT });
    return stored.every((byte, at) => byte === own[at]) && stored.length === ID_BYTES;
  }
}
