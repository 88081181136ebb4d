// Exports shared by every entry, in addition to `open` and the other module functions.
export { MAX_KEY, compareKeys, keyCodecs } from '../codec/keys.ts';
export type { Bound, Key, KeyCodec, KeyPrefix } from '../codec/keys.ts';
export { valueCodecs } from '../codec/values.ts';
export type { ValueCodec } from '../codec/values.ts';
export { KvError } from '../base/errors.ts';
export type { KvErrorCode } from '../base/errors.ts';
export type {
  ConnectionTrace, MergeTrace, OpenTrace, ReplicationTrace, TabsTrace, TraceDetail, TraceEvent, TracedError,
} from '../base/trace.ts';
export type {
  Change, ChangesOptions, ClearChange, Commit, CommitIterator, DeleteChange, DropChange, RenameChange, SetChange, Subscription,
  WatchOptions, Watchable,
} from '../types/feed.ts';
export type {
  BuildIndexesOptions, Index, IndexEntry, IndexEntryWithMeta, IndexOptions, IndexRange, IndexReadOptions, IndexWatchOptions, Indexed, LiveIndex,
  SyncIndex, SyncIndexRange,
} from '../types/indexes.ts';
export type { MigrationStep, Migrations, StepRun, UpgradeContext, UpgradeFunction, UpgradeProgress } from '../types/versions.ts';
export type { SchemaIssue, SchemaResult, StandardSchema } from '../types/collection.ts';
export { DELETE, KEEP } from '../types/index.ts';
export type {
  AdvancedOptions, Batch, BatchOp, Bounds, Collection, CollectionLayout, CollectionOptions, CollectionReference, CommitInfo, CustomStorage, Database, DatabaseEventMap,
  DestroyOptions, Durability, Encryption, EncryptionKey, EncryptionPassphrase, Entry, Expiry, ExtentKind, KvIterator, Layout, LayoutExtent, LayoutOptions, LevelLayout, MaintenanceOptions, OpenOptions, PlaceOptions, Range, RangeOptions,
  IndexStats, Reader, Result, Savepoint, SetOptions, SignalOptions, StreamOptions, Snapshot, Stats, StorageFile, Support, SyncCollection, SyncDatabase, SyncReader, SyncSnapshot, SyncTransaction, SyncUpdater, SyncView,
  SyncWriter, Transaction, TransactionOptions, UnsupportedReason, Updated, Updater, VerifyProblem, VerifyReport, WasmSource, WithMeta, WorkerSource, WriteOptions, Writer,
} from '../types/index.ts';
export type { BackupSource, RecoverOptions, RecoverReport, RestoreOptions } from '../types/maintenance.ts';
