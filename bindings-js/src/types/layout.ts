// How a database lies in its file.
import type { MaintenanceOptions } from './upkeep.ts';

/** Options of `layout`. */
export interface LayoutOptions extends MaintenanceOptions {
  /** Most extents in the layout. Default 4096. */
  maxExtents?: number | undefined;
}

/**
 * What an extent of the file holds: `superblock` where the file begins, the `catalog` of collections, the `free-map`; `inner` nodes and leaves (`leaf`)
 * of a collection, and each `value` that has blocks of its own; collections of the engine's own (`internal`), for the feed and for what expires;
 * what is `kept` for snapshots or until the next checkpoints, or is `free`; and what commits use that are not visible yet (`pending`).
 */
export type ExtentKind =
  'superblock' | 'catalog' | 'free-map' | 'inner' | 'leaf' | 'value' | 'internal' | 'kept' | 'free' | 'pending';

/** A part of the file. */
export interface LayoutExtent {
  /** Where it begins, in bytes. */
  readonly offset: number;
  /** Its length in bytes. */
  readonly length: number;
  /** What it holds. */
  readonly kind: ExtentKind;
  /** Name of the collection whose nodes or values it holds. */
  readonly collection?: string;
}

/** The nodes of one level of a collection's tree. Sizes are bytes. */
export interface LevelLayout {
  /** Nodes. */
  readonly nodes: number;
  /** In use in all of them, before compression: at most `nodes` times `Layout.nodeSize`. */
  readonly usedSize: number;
  /** What they take of the file. */
  readonly fileSize: number;
}

/** How one collection lies in the file. */
export interface CollectionLayout {
  /** `""` for the database's own. */
  readonly name: string;
  /** Entries, with those that have expired and were not purged yet. */
  readonly entries: number;
  /** Id of the key codec it is stored with. */
  readonly keyCodec: string;
  /** Id of the value codec it is stored with. */
  readonly valueCodec: string;
  /** From the leaves up to the root; none if it is empty. */
  readonly levels: readonly LevelLayout[];
  /** Blocks of values that have blocks of their own. */
  readonly valueBlocks: number;
  /** What those take of the file, in bytes. */
  readonly valueSize: number;
}

/** How a database lies in its file. Sizes are bytes. */
export interface Layout {
  /** Number of the newest commit it shows. */
  readonly version: number;
  /** Size of the file. */
  readonly fileSize: number;
  /** Allocation unit. */
  readonly unitSize: number;
  /** Most that can be in use in a node. */
  readonly nodeSize: number;
  /** False if there were more extents than `maxExtents`: each then stands for what takes most of its place. */
  readonly isExact: boolean;
  /** The whole file by offset, neighbours of one kind together. */
  readonly extents: readonly LayoutExtent[];
  /** In the order of their names. */
  readonly collections: readonly CollectionLayout[];
}
