//! Mangrove's storage engine: an embedded, transactional, ordered key-value store.
//!
//! A database is a set of copy-on-write B+trees in checksummed, compressible blocks, with a write-ahead log in front. It runs natively over [`std::fs`] and, compiled to
//! WebAssembly, over whatever the host offers, through the [`storage::Storage`] trait. The engine is synchronous, starts no threads
//! and has no global state. What a program has to do in return, with relaxed commits and records that expire, is [`Database::flush`] and
//! [`Database::purge_expired`].
//!
//! ```
//! use std::sync::Arc;
//! use mangrove_engine::{Database, Direction, Durability, KeyRange, Options, storage::MemoryStorage};
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
//!     Ok(visits)
//! })?;
//! assert_eq!(visits, 1);
//! database.close()?;
//! # Ok::<(), mangrove_engine::Error>(())
//! ```
//!
//! Layers, each building on those below: `backup` (snapshots as streams), `database` (open, snapshots, collections, feed, verification, compaction, salvage), `transaction`
//! (exclusive and optimistic transactions, commit, bulk load, expiry), `tree` (search, insert, delete, cursor), `checkpoint` (blocks, free space, superblock), `log` (records of
//! commits, flushes), `cache` (page table), `node` (slotted page), `block` (checksums, compression), [`index`] (ordered maps in memory), [`storage`] (files).

#![forbid(unsafe_code)]

/// So that the example on the page for users of the crate is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/RUST.md")]
struct Page;

#[cfg(not(target_family = "wasm"))]
mod background;
mod backup;
mod block;
mod cache;
mod checkpoint;
mod clock;
mod conflict;
mod database;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod index;
mod log;
mod memory_database;
mod node;
pub mod storage;
mod sync;
mod transaction;
mod tree;

#[cfg(not(target_family = "wasm"))]
pub use background::Background;
pub use backup::{BackupOutcome, BackupPieces, BackupProgress, BackupReport, RestoreReport, restore};
pub use block::Compression;
pub use clock::Clock;
pub use conflict::{Conflict, ConflictReason};
pub use database::is_database_file;
pub use database::{
    Change, Changes, CollectionInfo, Commit, Cursor, Database, OpenFlush, Options, Snapshot, Stats, Tree, Verification,
    VerifyProgress, VerifyReport,
};
pub use database::{CompactEnd, CompactOptions, CompactProgress, CompactReport};
pub use database::{
    Completeness, DamagedRange, LogState, LostRecord, RecoverPhase, RecoverProgress, RecoverReport,
    RecoveredCollection, RecoveredLog, RecoveredRoot, recover,
};
pub use database::{ExtentKind, LayoutPart, LayoutScan};
pub use error::{Corruption, Error, Result};
pub use memory_database::{
    MemoryCursor, MemoryDatabase, MemorySavepoint, MemorySnapshot, MemoryTransaction, MemoryTransactionCursor,
    MemoryTree, MemoryWriteTransaction, Record,
};
pub use transaction::{BulkLoad, BulkPhase, BulkProgress, BulkReport};
pub use transaction::{
    ChangeMany, CommitInfo, Durability, Entry, Isolation, ReadWrite, Savepoint, Submission, Transaction,
    TransactionCursor, TransactionScan, Update, Write, WriteBatch, WriteTransaction,
};
pub use tree::load::Duplicates;
pub use tree::{Direction, KeyRange, prefix_end};
