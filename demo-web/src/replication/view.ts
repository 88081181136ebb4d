// What the page shows of one device.
import type { ReplicationConflict, ReplicationProgress } from '@mangrove-kv/replication';
import { element } from '../dom.ts';
import { Device } from './device.ts';
import type { Choice, Log } from './device.ts';

const STATUS: Readonly<Record<ReplicationProgress['status'], string>> = {
  waiting: 'another tab replicates this device',
  connecting: 'connecting',
  'catching-up': 'catching up',
  live: 'live',
  offline: 'no connection',
  stopped: 'stopped',
};

export class DeviceView {
  readonly #name: string;
  readonly #root: HTMLElement;
  readonly #rows = new Map<string, HTMLLIElement>();
  readonly #onChange: () => void;
  readonly #opened: Promise<Device>;
  #device: Device | undefined;
  #progress: ReplicationProgress | undefined;
  #listing: Promise<void> = Promise.resolve();

  /** `onChange` is called when `isServerMissing` may have changed. */
  constructor(id: string, name: string, log: Log, onChange: () => void) {
    this.#name = name;
    this.#onChange = onChange;
    const copy = element<HTMLTemplateElement>('replication-device').content.cloneNode(true) as DocumentFragment;
    this.#root = copy.querySelector('section') as HTMLElement;
    this.#root.dataset['testid'] = `device-${id}`;
    this.#root.setAttribute('aria-label', name);
    (this.#root.querySelector('h2') as HTMLElement).textContent = name;
    this.#part('text').setAttribute('aria-label', `New note on the ${name}`);
    element('replication-devices').append(copy);
    // Another log is another pair of databases.
    this.#opened = Device.open(`${log.name}-${id}`, log, {
      onProgress: (progress) => this.#showProgress(progress),
      onConflict: (conflict, signal) => this.#ask(conflict, signal),
      onError: (error) => this.#report(error),
    });
    this.#listen();
  }

  /** What the visitor does before the database is open waits for it. */
  #listen(): void {
    const online = this.#part<HTMLInputElement>('online');
    online.addEventListener('change', () => void this.#guard(async () => (await this.#opened).connect(online.checked)));
    const text = this.#part<HTMLInputElement>('text');
    this.#part('new').addEventListener('submit', (event) => {
      event.preventDefault();
      const note = text.value.trim();
      if (note === '') return;
      void this.#guard(async () => {
        await (await this.#opened).add(note);
        if (text.value.trim() === note) text.value = '';
      });
    });
  }

  /** Whether the device tries to reach the server in vain. */
  get isServerMissing(): boolean {
    return (
      this.#device?.isOnline === true && (this.#progress?.status === 'offline' || this.#progress?.status === 'stopped')
    );
  }

  /** Resolves when the notes are being shown. */
  async show(): Promise<void> {
    this.#device = await this.#opened;
    this.#device.follow(() => this.#list());
    this.#list();
    if (this.#progress !== undefined) this.#showProgress(this.#progress);
  }

  /** Tries to reach the server now. */
  async retry(): Promise<void> {
    if (this.#device?.isOnline === true) await this.#device.connect(true);
  }

  #part<T extends HTMLElement = HTMLElement>(name: string): T {
    return this.#root.querySelector(`[data-part="${name}"]`) as T;
  }

  async #guard(run: () => Promise<unknown>): Promise<void> {
    this.#part('wrong').textContent = '';
    try {
      await run();
    } catch (error) {
      this.#report(error as Error);
    }
  }

  #report(error: Error): void {
    this.#part('wrong').textContent = error.message;
  }

  #showProgress(progress: ReplicationProgress): void {
    this.#progress = progress;
    const { status, pending, lastError } = progress;
    this.#part('status').textContent = this.#device?.isOnline === false ? 'switched offline' : STATUS[status];
    this.#part('pending').textContent = String(pending);
    this.#part('error').textContent = lastError === undefined ? 'none' : `${lastError.code}: ${lastError.message}`;
    this.#onChange();
  }

  /** Shows the notes once more, after the reading that is under way. */
  #list(): void {
    this.#listing = this.#listing.then(() =>
      this.#guard(async () => {
        const notes = await this.#device!.list();
        const keys = new Set(notes.map(([key]) => key));
        for (const [key, row] of this.#rows) {
          if (keys.has(key)) continue;
          row.remove();
          this.#rows.delete(key);
        }
        let last: Element | undefined;
        for (const [key, text] of notes) {
          const row = this.#rows.get(key) ?? this.#addRow(key);
          const input = row.querySelector('input') as HTMLInputElement;
          // What the visitor is typing stays.
          if (document.activeElement !== input || input.value === input.defaultValue) input.value = text;
          input.defaultValue = text;
          const place = last === undefined ? this.#part('notes').firstElementChild : last.nextElementSibling;
          if (place !== row) this.#part('notes').insertBefore(row, place);
          last = row;
        }
      }),
    );
  }

  #addRow(key: string): HTMLLIElement {
    const row = document.createElement('li');
    row.innerHTML =
      '<input maxlength="200" autocomplete="off" /><button type="button" class="quiet danger">Delete</button>';
    const input = row.querySelector('input') as HTMLInputElement;
    const button = row.querySelector('button') as HTMLButtonElement;
    input.setAttribute('aria-label', `Note on the ${this.#name}`);
    button.setAttribute('aria-label', `Delete the note on the ${this.#name}`);
    input.addEventListener(
      'change',
      () =>
        void this.#guard(async () => {
          const text = input.value.trim();
          if (text === '') input.value = input.defaultValue;
          else await this.#device!.notes.set(key, text);
        }),
    );
    button.addEventListener('click', () => void this.#guard(() => this.#device!.notes.delete(key)));
    this.#rows.set(key, row);
    return row;
  }

  #ask({ mine, theirs }: ReplicationConflict, signal: AbortSignal): Promise<Choice> {
    const [form, keep, take, merged] = [
      this.#part('conflict'),
      this.#part('mine'),
      this.#part('theirs'),
      this.#part<HTMLInputElement>('merged'),
    ];
    const [own, other] = [mine as string | undefined, theirs as string | undefined];
    keep.textContent = own === undefined ? `Delete it, as on the ${this.#name}` : `Keep “${own}”`;
    take.textContent = other === undefined ? 'Delete it, as on the other device' : `Take “${other}”`;
    merged.value = [own, other].filter((text) => text !== undefined).join(' / ');
    form.hidden = false;
    return new Promise<Choice>((resolve, reject) => {
      keep.onclick = () => resolve({ text: own });
      take.onclick = () => resolve({ text: other });
      form.onsubmit = (event) => {
        event.preventDefault();
        resolve({ text: merged.value.trim() });
      };
      const abort = (): void => reject(new Error('the question is asked again after the next start'));
      if (signal.aborted) abort();
      signal.addEventListener('abort', abort, { once: true });
    }).finally(() => {
      form.hidden = true;
    });
  }
}
