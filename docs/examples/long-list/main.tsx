// A million rows in a list that scrolls. The page has those around the visible ones; the database knows the others.
import { memo, useEffect, useState, useSyncExternalStore } from 'react';
import type { ReactNode, UIEvent } from 'react';
import { createRoot } from 'react-dom/client';
import { open } from 'mangrove-kv';
import type { Database } from 'mangrove-kv';
import { liveValue } from 'mangrove-kv/live';
import { useLiveWindow } from '@mangrove-kv/react';

type Rows = Database<number, string>;

const ROWS = 1_000_000;
/** Chromium draws no element that is higher than 33 million pixels. */
const ROW_HEIGHT = 20;
/** Rows above the visible ones, and below them. */
const AROUND = 200;

/** Goes on where an earlier visit was interrupted. */
async function fill(rows: Rows, onProgress: (filled: number) => void): Promise<void> {
  for (let from = await rows.size; from < ROWS; from += 10_000) {
    await rows.setMany(
      Array.from({ length: 10_000 }, (_, n) => [from + n, `row ${from + n}`] as const),
      { durability: 'relaxed' },
    );
    onProgress(from + 10_000);
  }
}

const Row = memo(({ position, text }: { position: number; text: string }) => (
  <li style={{ top: position * ROW_HEIGHT }}>{text}</li>
));

function List({ rows }: { rows: Rows }): ReactNode {
  const [
    {
      entries,
      range: { offset = 0 },
    },
    move,
  ] = useLiveWindow(rows, { limit: 2 * AROUND });
  const [count] = useState(() => liveValue(rows, (from) => from.count()));
  const { value: total = 0 } = useSyncExternalStore(count.subscribe, count.getSnapshot);
  const onScroll = ({ currentTarget: { scrollTop, clientHeight } }: UIEvent): void => {
    const [first, visible] = [Math.floor(scrollTop / ROW_HEIGHT), Math.ceil(clientHeight / ROW_HEIGHT)];
    const isNearStart = offset > 0 && first < offset + AROUND / 2;
    const isNearEnd = first + visible > offset + entries.length - AROUND / 2;
    if (isNearStart || isNearEnd) move(Math.max(first - AROUND, 0), visible + 2 * AROUND);
  };
  return (
    <>
      <h1>{total} rows</h1>
      <div className="list" onScroll={onScroll}>
        <ol style={{ height: total * ROW_HEIGHT }}>
          {entries.map(([key, text], n) => (
            <Row key={key} position={offset + n} text={text} />
          ))}
        </ol>
      </div>
    </>
  );
}

function Page(): ReactNode {
  const [rows, setRows] = useState<Rows>();
  const [progress, setProgress] = useState('Opening');
  useEffect(() => {
    open<number, string>('long-list')
      .then(async (opened) => {
        await fill(opened, (filled) => setProgress(`${filled} of ${ROWS} rows are written`));
        setRows(opened);
      })
      .catch((error: unknown) => setProgress(String(error)));
  }, []);
  return rows === undefined ? <p role="status">{progress}</p> : <List rows={rows} />;
}

createRoot(document.getElementById('root') as HTMLElement).render(<Page />);
