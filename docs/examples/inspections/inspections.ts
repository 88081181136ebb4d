// The data: inspections, which an index sorts by date, and a photo of each. Collections of Blobs have
// no indexes, so the photos are in one of their own, under the same keys.
import { KEEP, keyCodecs, open } from 'mangrove-kv';
import type { Collection, Database } from 'mangrove-kv';
import { blob } from 'mangrove-kv/blob';

export interface Inspection {
  readonly site: string;
  readonly isDone: boolean;
  readonly due: Date;
}

export interface Store {
  readonly db: Database;
  readonly inspections: Collection<number, Inspection>;
  readonly photos: Collection<number, Blob>;
}

const SAMPLE = 20_000;
const BATCH = 500;
const MINUTE_MS = 60_000;

export async function openStore(): Promise<Store> {
  const db = await open('inspections');
  return {
    db,
    inspections: db.collection<number, Inspection>('inspections', {
      key: keyCodecs.uint32,
      indexes: { byDue: { key: ({ isDone, due }) => [isDone, due] } },
    }),
    photos: db.collection<number, Blob>('photos', { key: keyCodecs.uint32, value: blob() }),
  };
}

/** Stores the photo first, which may be of any size: an inspection is not done without one. */
export async function finish({ inspections, photos }: Store, id: number, photo: Blob): Promise<void> {
  await photos.set(id, photo);
  await inspections.update(id, (inspection) => (inspection === undefined ? KEEP : { ...inspection, isDone: true }));
}

/**
 * Photos of up to 256 KiB fit into a batch, which is a commit. After an interruption, loading goes
 * on from the last one.
 */
export async function loadSample({ db, inspections, photos }: Store): Promise<void> {
  const drawn = await Promise.all(Array.from({ length: 16 }, (_, number) => draw(number)));
  for (let from = await inspections.size; from < SAMPLE; from += BATCH) {
    const batch = db.batch();
    for (let id = from; id < Math.min(from + BATCH, SAMPLE); id++) {
      const due = new Date(Date.UTC(2026, 0, 1) + ((id * 7919) % SAMPLE) * MINUTE_MS);
      batch.collection(inspections).set(id, { site: `Site ${id}`, isDone: false, due });
      batch.collection(photos).set(id, drawn[id % drawn.length] as Blob);
    }
    await batch.commit();
  }
}

function draw(number: number): Promise<Blob> {
  const canvas = new OffscreenCanvas(160, 120);
  const context = canvas.getContext('2d') as OffscreenCanvasRenderingContext2D;
  context.fillStyle = `hsl(${number * 22} 60% 60%)`;
  context.fillRect(0, 0, 160, 120);
  for (let dot = 0; dot < 300; dot++) {
    context.fillStyle = `hsl(${dot} 50% ${40 + (dot % 40)}%)`;
    context.fillRect((dot * 37) % 160, (dot * 53) % 120, 6, 6);
  }
  return canvas.convertToBlob({ type: 'image/jpeg' });
}
