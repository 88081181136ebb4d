// A list of all inspections by date, of which only the visible rows exist.
import { liveValue, liveWindow } from 'mangrove-kv/live';
import type { LiveWindow } from 'mangrove-kv/live';
import { finish, loadSample, openStore } from './inspections.ts';
import type { Inspection } from './inspections.ts';

const ROW_HEIGHT = 48;
const VISIBLE = 10;
const AROUND = 20;

const find = <E extends HTMLElement>(selector: string): E => document.querySelector(selector) as E;
const [list, status] = [find('#list'), find('[role=status]')];
const showDone = find<HTMLInputElement>('#done');
const load = find<HTMLButtonElement>('#load');

void navigator.serviceWorker.register('./service-worker.js');
void navigator.serviceWorker.ready.then(() => {
  find('#offline').hidden = false;
});
// Asks the browser to keep the data when space runs out.
void navigator.storage.persist();

const store = await openStore();
const { inspections, photos } = store;
type Entry = readonly [id: number, Inspection];
/** An entry that has not changed is the same object in the next result. */
const rows = new Map<Entry, HTMLElement>();
let view: LiveWindow<number, Inspection>;

function newRow(entry: Entry): HTMLElement {
  const [id, { site, isDone, due }] = entry;
  const row = Object.assign(document.createElement('div'), { className: 'row' });
  const image = Object.assign(document.createElement('img'), { alt: `photo of ${site}` });
  row.append(image, `${site}, ${due.toISOString().slice(0, 16)}`);
  if (!isDone) {
    const input = Object.assign(document.createElement('input'), {
      type: 'file',
      accept: 'image/*',
      ariaLabel: `photo for ${site}`,
    });
    input.onchange = () => {
      if (input.files?.[0]) void finish(store, id, input.files[0]).catch(report);
    };
    row.append(input);
  }
  void photos
    .get(id)
    .then((photo) => {
      // The row may have left the screen meanwhile.
      if (photo !== undefined && rows.has(entry)) image.src = URL.createObjectURL(photo);
    })
    .catch(report);
  return row;
}

function removeRow(entry: Entry, row: HTMLElement): void {
  URL.revokeObjectURL(row.querySelector('img')?.src ?? '');
  row.remove();
  rows.delete(entry);
}

function draw(): void {
  const {
    entries,
    range: { offset = 0 },
    error,
  } = view.getSnapshot();
  if (error !== undefined) report(error);
  const shown = new Set<Entry>(entries);
  for (const [entry, row] of rows) if (!shown.has(entry)) removeRow(entry, row);
  for (const [nth, entry] of entries.entries()) {
    const row = rows.get(entry) ?? newRow(entry);
    row.style.top = `${(offset + nth) * ROW_HEIGHT}px`;
    if (!rows.has(entry)) list.append(row);
    rows.set(entry, row);
  }
}

function report(error: unknown): void {
  status.textContent = String(error);
}

function scroll(): void {
  const first = Math.floor(list.scrollTop / ROW_HEIGHT);
  view.move(Math.max(first - AROUND / 2, 0), VISIBLE + AROUND);
}

/** Shows those that are done, or those to do; returns the function that ends this. */
function show(isDone: boolean): () => void {
  const range = { prefix: [isDone] };
  const total = liveValue(inspections, (from) => from.index('byDue', { whenIncomplete: 'wait' }).count(range));
  view = liveWindow(inspections.index('byDue', { whenIncomplete: 'wait' }), { ...range, limit: VISIBLE + AROUND });
  // The list is as high as all of its rows.
  const end = Object.assign(document.createElement('div'), { className: 'row', ariaHidden: 'true' });
  end.style.visibility = 'hidden';
  list.append(end);
  list.scrollTop = 0;
  const stops = [
    view.subscribe(draw),
    total.subscribe(() => {
      const { value = 0 } = total.getSnapshot();
      status.textContent = `${value} ${isDone ? 'done' : 'to do'}`;
      end.style.top = `${Math.max(value - 1, 0) * ROW_HEIGHT}px`;
    }),
  ];
  return () => {
    for (const stop of stops) stop();
    for (const [entry, row] of rows) removeRow(entry, row);
    end.remove();
  };
}

let stop = show(false);
list.onscroll = scroll;
showDone.onchange = () => {
  stop();
  stop = show(showDone.checked);
};
load.onclick = () => {
  load.disabled = true;
  void loadSample(store).catch(report);
};
load.disabled = showDone.disabled = false;
