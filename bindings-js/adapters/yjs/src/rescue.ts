// Updates that are on their way when their page is left. While one tab takes the database over from another, nobody can
// store them; a page that ends just then leaves them in localStorage, the one storage that is synchronous, for the next
// provider that loads the document.
import * as Y from 'yjs';

const CHUNK = 8192;

/** Updates that an earlier page has left. */
export interface Rescued {
  readonly key: string;
  readonly update: Uint8Array;
}

export class Rescue {
  readonly #prefix: string;
  readonly #own: string;
  readonly #pending: () => Uint8Array | undefined;
  #hasSaved = false;

  /** `pending` returns what is not stored yet, as one update. */
  constructor(place: readonly string[], writer: number, pending: () => Uint8Array | undefined) {
    this.#prefix = prefixOf(place);
    this.#own = `${this.#prefix}${writer}`;
    this.#pending = pending;
    if (storageOf() === undefined) return;
    addEventListener('pagehide', this.#save);
    document.addEventListener('visibilitychange', this.#saveIfHidden);
  }

  /** What other providers have left. Anything that they did not write is passed over. */
  read(): Rescued[] {
    const found: Rescued[] = [];
    for (const [key, text] of itemsOf(this.#prefix)) {
      try {
        const update = Uint8Array.from(atob(text), (unit) => unit.charCodeAt(0));
        Y.decodeUpdate(update);
        if (key !== this.#own) found.push({ key, update });
      } catch {
        // Not an update in base64.
      }
    }
    return found;
  }

  /** Forgets what was left, and is stored now. */
  remove(rescued: readonly Rescued[]): void {
    for (const { key } of rescued) storageOf()?.removeItem(key);
  }

  /** Called when everything is stored. */
  stored(): void {
    if (!this.#hasSaved) return;
    this.#hasSaved = false;
    storageOf()?.removeItem(this.#own);
  }

  /** Saves nothing from now on. */
  stop(): void {
    if (storageOf() === undefined) return;
    removeEventListener('pagehide', this.#save);
    document.removeEventListener('visibilitychange', this.#saveIfHidden);
  }

  readonly #save = (): void => {
    const update = this.#pending();
    if (update === undefined) return;
    try {
      storageOf()?.setItem(this.#own, toBase64(update));
      this.#hasSaved = true;
    } catch {
      // No room, and no time to do anything else.
    }
  };

  readonly #saveIfHidden = (): void => {
    if (document.visibilityState === 'hidden') this.#save();
  };
}

/** Forgets what pages have left of a document. */
export function forgetRescued(place: readonly string[]): void {
  for (const [key] of itemsOf(prefixOf(place))) storageOf()?.removeItem(key);
}

function prefixOf(place: readonly string[]): string {
  return `mangrove-kv/yjs ${JSON.stringify(place)} `;
}

function itemsOf(prefix: string): [key: string, text: string][] {
  const storage = storageOf();
  if (storage === undefined) return [];
  const keys = Array.from({ length: storage.length }, (_, index) => storage.key(index) ?? '');
  return keys.filter((key) => key.startsWith(prefix)).map((key) => [key, storage.getItem(key) ?? '']);
}

/** The page's localStorage. Servers and workers have no pages that are left; a policy may forbid it. */
function storageOf(): Storage | undefined {
  if (typeof document !== 'object') return undefined;
  try {
    return globalThis.localStorage;
  } catch {
    return undefined;
  }
}

function toBase64(bytes: Uint8Array): string {
  let text = '';
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}
