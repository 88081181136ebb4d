// Where the parts of a database lie in its file.
import type { MaintenanceOptions } from './maintenance.ts';

/** Options of `layout`. */
export interface LayoutOptions extends MaintenanceOptions {
  /** Maximum number of extents in the layout. Default: 4096. */
  maxExtents?: number | undefined;
}

/**
 * What an extent of the file holds:
 *
 * - `superblock`: the start of the file.
 * - `catalog`: the catalog of collections.
 * - `free-map`: the map of free space.
 * - `inner`, `leaf`: inner nodes and leaves of a collection.
 * - `value`: out-of-line values, which have blocks of their own.
 * - `index`: indexes of a collection, and the index keys of its entries.
 * - `internal`: the engine's other collections, for the feed and for expiry.
 * - `kept`: space kept for snapshots or until the next checkpoints.
 * - `free`: free space.
 * - `pending`: space used by commits that are not visible yet.
 */
export type ExtentKind =
  | 'superblock'
  | 'catalog'
  | 'free-map'
  | 'inner'
  | 'leaf'
  | 'value'
  | 'index'
  | 'internal'
  | 'kept'
  | 'free'
  | 'pending';

/** A part of the file. */
export interface LayoutExtent {
  /** Offset in bytes. */
  readonly offset: number;
  /** Length in bytes. */
  readonly length: number;
  /** What the extent holds. */
  readonly kind: ExtentKind;
  /** Name of the collection whose nodes, values or indexes it holds. */
  readonly collection?: string;
}

/** The nodes of one level of a collection's tree. Sizes are in bytes. */
export interface LevelLayout {
  /** Number of nodes. */
  readonly nodes: number;
  /** Space in use in all of them, before compression: at most `nodes` times `Layout.nodeSize`. */
  readonly usedSize: number;
  /** Space that they take in the file. */
  readonly fileSize: number;
}

/** Where one collection lies in the file. */
export interface CollectionLayout {
  /** The collection's name; `""` for the database's default collection. */
  readonly name: string;
  /** Number of entries, including expired ones that are not purged yet. */
  readonly entries: number;
  /** Id of the key codec with which it is stored. */
  readonly keyCodec: string;
  /** Id of the value codec with which it is stored. */
  readonly valueCodec: string;
  /** Levels of the tree from the leaves up to the root; empty if the collection is. */
  readonly levels: readonly LevelLayout[];
  /** Number of blocks of out-of-line values. */
  readonly valueBlocks: number;
  /** Space that these blocks take in the file, in bytes. */
  readonly valueSize: number;
  /** Space that its indexes take in the file, in bytes, with the index keys kept for each entry. */
  readonly indexSize: number;
}

/** Where the parts of a database lie in its file. Sizes are in bytes. */
export interface Layout {
  /** Number of the newest commit shown. */
  readonly version: number;
  /** Size of the file. */
  readonly fileSize: number;
  /** Size of an allocation unit. */
  readonly unitSize: number;
  /** Maximum space that can be in use in a node. */
  readonly nodeSize: number;
  /**
   * False if there were more extents than `maxExtents`: each extent then shows the kind that takes
   * up most of it.
   */
  readonly isExact: boolean;
  /** The whole file by offset, with adjacent extents of the same kind merged. */
  readonly extents: readonly LayoutExtent[];
  /** Collections in the order of their names. */
  readonly collections: readonly CollectionLayout[];
}
