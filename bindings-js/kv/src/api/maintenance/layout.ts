// Assembles a database's layout from the parts of the file that the engine reports.
import type {
  CollectionLayout,
  ExtentKind,
  Layout,
  LayoutExtent,
  LayoutOptions,
  LevelLayout,
} from '../../types/index.ts';
import type { Names } from '../../base/names.ts';
import { abortable, checkCount, ignore } from '../../base/async.ts';
import type { Connection } from '../../wire/connection.ts';
import { Op } from '../../wire/opcodes.ts';
import type { ReplyReader } from '../../wire/protocol.ts';
import { MAINTENANCE } from '../arguments.ts';
import { check } from './backup-verify.ts';

/** Nodes and values visited per message. Of most of them the engine reads only the reference. */
const VISITS = 2000;
const MAX_EXTENTS = 4096;
const LAYOUT: Names<LayoutOptions> = { maxExtents: 1, ...MAINTENANCE };

/** Indexed by the engine's code. Larger codes are nodes: the length of this list plus the level. */
const KINDS = ['superblock', 'catalog', 'free-map', 'kept', 'free', 'internal', 'index', 'value'] as const;
/** Parts with this code and larger ones belong to a collection. */
const FIRST_OF_COLLECTION = KINDS.indexOf('index');

/** A part of the file, in units. `collection` is an index, or -1 for none. */
interface Part {
  readonly start: number;
  readonly end: number;
  readonly kind: ExtentKind;
  readonly collection: number;
}

type Mutable<T> = { -readonly [P in keyof T]: T[P] };

interface Trees {
  readonly levels: Mutable<LevelLayout>[];
  valueBlocks: number;
  valueUnits: number;
  indexUnits: number;
}

class Parts {
  readonly list: Part[] = [];
  readonly trees: Trees[] = [];

  read(reader: ReplyReader): void {
    const code = reader.uv();
    const start = reader.uv();
    const units = reader.uv();
    const kind = KINDS[code] ?? (code === KINDS.length ? 'leaf' : 'inner');
    const collection = code < FIRST_OF_COLLECTION ? -1 : reader.uv();
    this.list.push({ start, end: start + units, kind, collection });
    if (collection < 0) return;
    const usedSize = reader.uv();
    const tree = this.#tree(collection);
    if (kind === 'index') {
      tree.indexUnits += units;
      return;
    }
    if (kind === 'value') {
      tree.valueBlocks++;
      tree.valueUnits += units;
      return;
    }
    const level = (tree.levels[code - KINDS.length] ??= { nodes: 0, usedSize: 0, fileSize: 0 });
    level.nodes++;
    level.usedSize += usedSize;
    // In units; `toLayout` converts them to bytes.
    level.fileSize += units;
  }

  #tree(collection: number): Trees {
    return (this.trees[collection] ??= { levels: [], valueBlocks: 0, valueUnits: 0, indexUnits: 0 });
  }
}

/** Appends a part; merges it into the last one if kind and collection are the same. */
function push(parts: Part[], { start, end, kind, collection }: Part): void {
  if (end <= start) return;
  const last = parts.at(-1);
  const isSame = last?.kind === kind && last.collection === collection;
  if (isSame) parts[parts.length - 1] = { ...last, end };
  else parts.push({ start, end, kind, collection });
}

/**
 * Returns parts that cover all units up to `end` in order. Gaps become `pending`; adjacent parts of
 * the same kind and collection are merged.
 */
export function fillGaps(found: readonly Part[], end: number): Part[] {
  const whole: Part[] = [];
  let at = 0;
  const gap = (start: number): void => push(whole, { start: at, end: start, kind: 'pending', collection: -1 });
  for (const part of [...found].sort((a, b) => a.start - b.start)) {
    gap(Math.min(part.start, end));
    const partEnd = Math.min(part.end, end);
    push(whole, { ...part, start: Math.max(part.start, at), end: partEnd });
    at = Math.max(at, partEnd);
  }
  gap(end);
  return whole;
}

/**
 * Rounds `whole` to cells of `cellUnits` units. Each gets the kind and collection that take up most
 * of it.
 */
export function coarsen(whole: readonly Part[], cellUnits: number): Part[] {
  const coarse: Part[] = [];
  const end = whole.at(-1)?.end ?? 0;
  let index = 0;
  for (let start = 0; start < end; start += cellUnits) {
    const cellEnd = Math.min(start + cellUnits, end);
    const shares = new Map<string, { readonly part: Part; units: number }>();
    for (; ; index++) {
      const part = whole[index];
      if (part === undefined || part.start >= cellEnd) break;
      const units = Math.min(part.end, cellEnd) - Math.max(part.start, start);
      const id = `${part.kind} ${part.collection}`;
      const share = shares.get(id);
      if (share === undefined) shares.set(id, { part, units });
      else share.units += units;
      if (part.end > cellEnd) break;
    }
    let most: { readonly part: Part; readonly units: number } | undefined;
    for (const share of shares.values()) if (most === undefined || share.units > most.units) most = share;
    if (most !== undefined) push(coarse, { ...most.part, start, end: cellEnd });
  }
  return coarse;
}

function toLayout(parts: Parts, reader: ReplyReader, maxExtents: number): Layout {
  const [version, fileSize, unitSize, nodeSize] = [reader.uv(), reader.uv(), reader.uv(), reader.uv()];
  const collections: CollectionLayout[] = [];
  for (let index = 0, count = reader.uv(); index < count; index++) {
    const [name, entries, keyCodec, valueCodec] = [reader.str(), reader.uv(), reader.str(), reader.str()];
    const { levels = [], valueBlocks = 0, valueUnits = 0, indexUnits = 0 } = parts.trees[index] ?? {};
    for (const level of levels) level.fileSize *= unitSize;
    collections.push({
      name,
      entries,
      keyCodec,
      valueCodec,
      levels,
      valueBlocks,
      valueSize: valueUnits * unitSize,
      indexSize: indexUnits * unitSize,
    });
  }
  const units = fileSize / unitSize;
  const whole = fillGaps(parts.list, units);
  const isExact = whole.length <= maxExtents;
  const shown = isExact ? whole : coarsen(whole, Math.ceil(units / Math.max(maxExtents, 1)));
  const extents = shown.map(({ start, end, kind, collection }): LayoutExtent => {
    const extent = { offset: start * unitSize, length: (end - start) * unitSize, kind };
    const name = collections[collection]?.name;
    return name === undefined ? extent : { ...extent, collection: name };
  });
  return { version, fileSize, unitSize, nodeSize, isExact, extents, collections };
}

export async function layout(connection: Connection, options: LayoutOptions | undefined): Promise<Layout> {
  const { signal, onProgress } = check('layout', options, LAYOUT);
  const { maxExtents = MAX_EXTENTS } = options ?? {};
  checkCount('maxExtents', maxExtents);
  const id = connection.newId();
  const parts = new Parts();
  try {
    for (let begins = 1; ; begins = 0) {
      const { done, total, found } = await abortable(
        connection.requestLoading(
          (writer) => writer.u8(Op.layout).uv(id).uv(VISITS).u8(begins),
          (reader) => {
            const [done, total, count] = [reader.uv(), reader.uv(), reader.uv()];
            for (let left = count - 1; left > 0; left--) parts.read(reader);
            return { done, total, found: count === 0 ? toLayout(parts, reader, maxExtents) : undefined };
          },
        ),
        signal,
      );
      onProgress(done, total);
      if (found !== undefined) return found;
    }
  } catch (error) {
    if (connection.status === 'open') connection.post((writer) => writer.u8(Op.layout).uv(id).uv(0).u8(0), ignore);
    throw error;
  }
}
