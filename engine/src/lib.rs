//! Mangrove's storage engine: an embedded, transactional, ordered key-value store.
//!
//! A database is a set of copy-on-write B+trees in checksummed, compressible blocks, with a
//! write-ahead log in front. It runs natively over [`std::fs`] and, compiled to WebAssembly, over
//! whatever the host offers, through the [`storage::Storage`] trait. The engine is synchronous,
//! starts no threads and has no global state. In return, a program with relaxed commits or expiring
//! records has to call [`Database::flush`] and [`Database::purge_expired`].
//!
//! ```
//! use std::sync::Arc;
//! use mangrove_engine::{Database, Direction, Durability, Error, KeyRange, Options, storage::MemoryStorage};
//!
//! let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
//! let mut transaction = database.begin()?;
//! transaction.set("cities", b"Lagos", b"15.4 M")?;
//! transaction.set("cities", b"Quito", b"2.0 M")?;
//! transaction.commit(Durability::Strict)?;
//!
//! let snapshot = database.snapshot();
//! let cities = snapshot.collection("cities").expect("it was just written");
//! assert_eq!(cities.len(), 2);
//! assert_eq!(cities.get(b"Quito")?, Some(b"2.0 M".to_vec()));
//! let mut cursor = cities.cursor(KeyRange::all(), Direction::Reverse);
//! assert!(cursor.advance()?);
//! assert_eq!(cursor.key(), b"Quito");
//!
//! let (visits, _) = database.transact(Durability::Relaxed, 100, |transaction| {
//!     let visits = transaction.get("counters", b"Quito")?.map_or(0, |value| value[0]) + 1;
//!     transaction.set("counters", b"Quito", &[visits])?;
//!     Ok::<_, Error>(visits)
//! })?;
//! assert_eq!(visits, 1);
//! database.close()?;
//! # Ok::<(), mangrove_engine::Error>(())
//! ```
//!
//! With the feature `tracing` it emits events: opening and what it had to fall back to, merges,
//! checkpoints, switches of the log, and the fence between openings.
//!
//! Layers, each of which uses only those after it:
//!
//! - `maintenance`: verification, compaction, layout, salvage, backups
//! - `database`: open, options, feed
//! - `transaction`: exclusive and optimistic transactions, commit, expiry
//! - `snapshot`: read views and cursors
//! - `state`: versions, collections, the writer
//! - `memtable`: commits not yet merged into the trees
//! - `tree`: search, merge, cursor
//! - `pages`: page table, drafts, free space, superblock, checkpoint
//! - `log`: records of commits, flushes
//! - `node`: slotted page
//! - `block`: checksums, compression
//! - [`storage`] (files)
//! - `range`

#![forbid(unsafe_code)]

/// Compiles the example on the page for users of the crate.
#[cfg(doctest)]
#[doc = include_str!("../../docs/RUST.md")]
struct Page;

#[cfg(not(target_family = "wasm"))]
mod background;
mod block;
mod cipher;
mod clock;
mod database;
mod error;
mod locks;
mod log;
mod maintenance;
mod memtable;
mod node;
mod pages;
mod range;
mod small_map;
mod snapshot;
mod state;
pub mod storage;
#[cfg(feature = "testing")]
#[doc(hidden)]
#[path = "../testing/mod.rs"]
pub mod testing;
mod trace;
mod transaction;
mod tree;

#[cfg(not(target_family = "wasm"))]
pub use background::Background;
pub use block::Compression;
pub use cipher::Key;
#[cfg(feature = "encryption")]
pub use cipher::PassphraseCost;
#[cfg(all(feature = "encryption", not(target_family = "wasm")))]
pub use cipher::system_random;
pub use clock::Clock;
#[cfg(feature = "encryption")]
pub use database::SealedKey;
pub use database::{
    AdvancedOptions, Changes, Database, IndexBy, IndexedCollection, OpenFlush, Options, Stats, is_database_file,
};
pub use error::{
    BackupDamage, CodecMismatch, Conflict, ConflictReason, Corruption, Error, IndexRefusal, IoFailure, NotUnique,
    Result, Text, TooLarge, TooMany, WrongBase,
};
pub use maintenance::{BackupOutcome, BackupPieces, BackupProgress, BackupReport, RestoreReport, restore};
pub use maintenance::{CompactEnd, CompactOptions, CompactProgress, CompactReport};
pub use maintenance::{
    Completeness, DamagedRange, LogState, LostRecord, RecoverPhase, RecoverProgress, RecoverReport,
    RecoveredCollection, RecoveredLog, RecoveredRoot, recover,
};
pub use maintenance::{ExtentKind, LayoutPart, LayoutScan};
#[cfg(feature = "encryption")]
pub use maintenance::{ReencryptEnd, ReencryptOptions, ReencryptProgress};
pub use maintenance::{Verification, VerifyProgress, VerifyReport};
pub use range::{Direction, KeyPrefix, KeyRange, prefix_end};
pub use snapshot::{Cursor, CursorRecords, IndexCursor, IndexInfo, Snapshot, SnapshotCollection, SnapshotIndex};
pub use state::{Change, CollectionInfo, Commit, Entry, Index, IndexDefinition, IndexKeys, IndexProgress};
pub use transaction::{
    BatchOperation, CommitInfo, Durability, ExclusiveTransaction, IndexScan, Isolation, OptimisticTransaction,
    ReadWrite, Savepoint, SliceRecord, StagedValue, Submission, TransactionCursor, TransactionScan, Update, WriteBatch,
    WriteIndexed,
};
pub use tree::value::ValuePart;
