// What each start page does: it opens its store, which `?seed` fills, and shows the first rows.
export interface Row {
  readonly name: string;
  readonly size: number;
}

export interface Store {
  seed(rows: readonly Row[]): Promise<void>;
  /** The first rows by key. */
  first(limit: number): Promise<readonly Row[]>;
}

/** Entries in the store, and rows that are shown. */
const ENTRIES = 20_000;
const SHOWN = 30;

const rows = (): Row[] => Array.from({ length: ENTRIES }, (_, index) => ({ name: `row ${index}`, size: index * 7 }));

function painted(): Promise<void> {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve, 0));
  });
}

/** Sets `document.title` to the milliseconds from the navigation to the first paint of the rows. */
export async function show(open: () => Promise<Store>): Promise<void> {
  const store = await open();
  if (location.search === '?seed') await store.seed(rows());
  const list = document.createElement('ol');
  for (const { name, size } of await store.first(SHOWN)) {
    const item = document.createElement('li');
    item.textContent = `${name}: ${size}`;
    list.append(item);
  }
  if (list.childElementCount !== SHOWN) throw new Error(`${list.childElementCount} rows`);
  document.body.append(list);
  await painted();
  document.title = String(performance.now());
}
