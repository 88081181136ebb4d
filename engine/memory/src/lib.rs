//! An in-memory database. Versions are persistent indexes, so a snapshot is a pointer.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::index::{BTree, OrderedIndex};
use mangrove_engine::{Clock, CollectionInfo, CommitInfo, Error, Isolation, Result, WriteBatch};

mod crit_bit;
mod cursor;
mod draft;
pub mod index;
mod limits;
mod optimistic;
mod snapshot;
mod state;
mod write;

pub use crit_bit::{CritBit, CritBitRange};
pub use cursor::MemoryCursor;
pub use optimistic::{MemorySavepoint, MemoryTransaction, MemoryTransactionCursor};
pub use snapshot::{MemorySnapshot, MemoryTree};
pub use state::Record;
pub use write::MemoryWriteTransaction;

use state::State;

/// Longest key in bytes.
const MAX_KEY_BYTES: usize = 1 << 20;

struct Shared<I> {
    current: Mutex<Arc<State<I>>>,
    /// Held by the one write transaction. Taken before `current`.
    turn: Mutex<()>,
    clock: Clock,
}

/// Locks and ignores poisoning: no state is inconsistent while a lock here is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<I> Shared<I> {
    fn current(&self) -> Arc<State<I>> {
        Arc::clone(&lock(&self.current))
    }

    /// Makes a version visible. Freeing the former one may take long, so it is dropped after the
    /// lock is released.
    fn publish(&self, state: State<I>) {
        let state = Arc::new(state);
        let former = std::mem::replace(&mut *lock(&self.current), state);
        drop(former);
    }
}

/// An ordered key-value database in memory, freed with its last handle.
///
/// It is `Send + Sync` if its index is: any number of threads read, one writes at a time, and
/// readers never wait for the writer.
///
/// It offers what [`Database`](mangrove_engine::Database) offers, except a file: named collections,
/// snapshots, exclusive and optimistic transactions, versions, expiry, positions. Without blocks,
/// checksums and a cache, reads return references instead of copies.
///
/// `I` is the index of the records: [`BTree`], or [`CritBit`], which copies less per commit where
/// collections are small. Looking up, setting and removing a record takes O(log n), a snapshot
/// O(1), beginning a write transaction O(number of collections). Each node that a commit changes is
/// copied once if a snapshot or the previous version shares it.
///
/// ```
/// use mangrove_engine::{Direction, KeyRange};
/// use mangrove_memory::{CritBit, MemoryDatabase, Record};
///
/// let database = MemoryDatabase::<CritBit<Record>>::new();
/// let mut transaction = database.begin();
/// transaction.set("cities", b"Lagos", b"15.4 M")?;
/// transaction.set("cities", b"Quito", b"2.0 M")?;
/// transaction.commit();
///
/// let cities = database.snapshot().collection("cities").expect("it was just written");
/// assert_eq!(cities.get(b"Quito"), Some(&b"2.0 M"[..]));
/// let mut cursor = cities.cursor(KeyRange::all(), Direction::Reverse);
/// assert!(cursor.advance());
/// assert_eq!(cursor.key(), b"Quito");
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub struct MemoryDatabase<I: OrderedIndex<Record> = BTree<Record>> {
    shared: Arc<Shared<I>>,
}

/// A clone is another handle of the same database.
impl<I: OrderedIndex<Record>> Clone for MemoryDatabase<I> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<I: OrderedIndex<Record>> Default for MemoryDatabase<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: OrderedIndex<Record>> MemoryDatabase<I> {
    /// Creates an empty database.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::default())
    }

    /// Creates an empty database where `clock` decides which records have expired.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        let shared = Shared {
            current: Mutex::default(),
            turn: Mutex::default(),
            clock,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns a read view of the newest version, O(1). Later commits do not change it.
    #[must_use]
    pub fn snapshot(&self) -> MemorySnapshot<I> {
        MemorySnapshot::new(self.shared.current(), self.shared.clock.now())
    }

    /// Begins an exclusive write transaction; waits while another thread holds one.
    #[must_use]
    pub fn begin(&self) -> MemoryWriteTransaction<'_, I> {
        MemoryWriteTransaction::new(&self.shared)
    }

    /// Begins an optimistic transaction, which takes no locks. `isolation` decides which concurrent
    /// commits make its commit fail.
    #[must_use]
    pub fn transaction(&self, isolation: Isolation) -> MemoryTransaction<I> {
        MemoryTransaction::new(&self.shared, isolation)
    }

    /// Runs `work` in a serializable optimistic transaction and commits it.
    ///
    /// After a conflict `work` runs again, up to `attempts` times in total, so it must not have
    /// side effects outside the transaction. An error from `work` rolls the transaction back.
    ///
    /// # Errors
    /// Those of `work`; [`Error::Conflict`] after the last attempt.
    pub fn transact<T>(
        &self,
        attempts: usize,
        mut work: impl FnMut(&mut MemoryTransaction<I>) -> Result<T>,
    ) -> Result<(T, CommitInfo)> {
        let mut left = attempts.max(1);
        loop {
            left -= 1;
            let mut transaction = self.transaction(Isolation::Serializable);
            let result = work(&mut transaction)?;
            match transaction.commit() {
                Err(Error::Conflict { .. }) if left > 0 => {}
                committed => return committed.map(|info| (result, info)),
            }
        }
    }

    /// Applies a batch as one commit.
    ///
    /// # Errors
    /// As [`MemoryWriteTransaction::set`]; no part of the batch is visible then.
    pub fn write(&self, batch: &WriteBatch) -> Result<CommitInfo> {
        let mut transaction = self.begin();
        transaction.apply(batch)?;
        Ok(transaction.commit())
    }

    /// Removes up to `limit` expired records in one commit; returns how many it removed.
    ///
    /// Expired records are already invisible; purging reclaims their space. O(log n) each.
    pub fn purge_expired(&self, limit: usize) -> usize {
        let mut transaction = self.begin();
        let purged = transaction.draft.purge(limit);
        transaction.commit();
        purged
    }

    /// Commit sequence number of the newest commit, 0 for a new database.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.current().version
    }

    /// All collections, ordered by name.
    #[must_use]
    pub fn collections(&self) -> Vec<CollectionInfo> {
        self.snapshot().collections()
    }

    /// Longest key in bytes.
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        MAX_KEY_BYTES
    }
}

impl<I: OrderedIndex<Record>> std::fmt::Debug for MemoryDatabase<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDatabase")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<MemoryDatabase>();
    send_and_sync::<MemorySnapshot>();
    send_and_sync::<MemoryDatabase<CritBit<Record>>>();
};
