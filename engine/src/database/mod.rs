//! The database: opening, its handle, its options, and its change feed.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::snapshot::{Cursor, Snapshot};
use crate::state::{CollectionInfo, Shared, Writer, expiry};
use crate::storage::Storage;
use crate::transaction::{
    CommitInfo, Durability, ExclusiveTransaction, Isolation, OptimisticTransaction, StagedValue, WriteBatch,
};

mod concurrent_reader;
mod feed;
mod fence;
mod indexed;
#[cfg(feature = "encryption")]
mod key;
mod open;
mod open_flush;
mod options;
mod recognize;
mod stats;

pub use feed::Changes;
pub use indexed::{IndexBy, IndexedCollection};
#[cfg(feature = "encryption")]
pub use key::SealedKey;
pub(crate) use open::{Start, recover_from};
pub use open_flush::OpenFlush;
pub use options::{AdvancedOptions, Options};
pub use recognize::is_database_file;
pub use stats::Stats;

/// Longest wait before a transaction is retried.
const CONFLICT_WAIT: Duration = Duration::from_millis(100);

/// An open database. It is `Send + Sync`: any number of threads read, one writes at a time, and
/// readers never wait for the writer.
///
/// Dropping it without [`close`](Self::close) is safe, but loses commits made with
/// [`Durability::None`] since the last checkpoint, and the next open has to read the log.
pub struct Database {
    pub(crate) shared: Arc<Shared>,
    /// Only for a database read beside a writer.
    concurrent_reader: Option<concurrent_reader::ConcurrentReader>,
}

impl Database {
    /// Opens or creates the database in `storage`.
    ///
    /// A failed open changes nothing in the storage.
    ///
    /// # Errors
    /// [`Error::NotFound`] and [`Error::AlreadyExists`] depending on the options, [`Error::Locked`]
    /// if it is open elsewhere, [`Error::NotADatabase`], [`Error::VersionUnsupported`],
    /// [`Error::Corrupt`], [`Error::KeyOrderUnsupported`], [`Error::InvalidArgument`] for options
    /// out of range, and storage errors.
    #[allow(clippy::needless_pass_by_value, reason = "the database owns its storage")]
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        let concurrent_reader = if storage.is_beside_writer() {
            Some(concurrent_reader::ConcurrentReader::new(
                Arc::clone(&storage),
                options.clone(),
            )?)
        } else {
            None
        };
        let shared = match &concurrent_reader {
            Some(concurrent_reader) => concurrent_reader.open()?,
            None => open::open(&*storage, &options)?,
        };
        let database = Self {
            shared: Arc::new(shared),
            concurrent_reader,
        };
        if options.feed_commits > 0 && !options.read_only {
            let mut transaction = database.begin()?;
            transaction.keep_feed(options.feed_commits)?;
            transaction.commit(Durability::Strict)?;
        }
        Ok(database)
    }

    /// Returns a read view of the newest version, O(1). Later commits do not change it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.shared)
    }

    /// Whether any collection has indexes.
    #[must_use]
    pub fn has_indexes(&self) -> bool {
        self.shared.newest().collections.summary().has_indexes
    }

    /// Begins an exclusive write transaction; waits while another thread holds one.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Poisoned`].
    pub fn begin(&self) -> Result<ExclusiveTransaction<'_>> {
        ExclusiveTransaction::new(&self.shared)
    }

    /// Follows the commits after version `since`, or from now on.
    ///
    /// If the database stores a feed ([`Options::feed_commits`]), `since` may be as old as the feed
    /// reaches, even before this open. Otherwise commits are retained in memory for active followers,
    /// up to 32 MiB, and the first follower waits for the flush of commits that are under way: from
    /// then on it misses none.
    ///
    /// # Errors
    /// [`Error::TruncatedFeed`] if commits after `since` are no longer retained; without `since`, those of a flush.
    pub fn changes(&self, since: Option<u64>) -> Result<Changes> {
        Changes::new(&self.shared, since)
    }

    /// Begins an optimistic transaction, which takes no locks. `isolation` decides which concurrent
    /// commits make its commit fail.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn transaction(&self, isolation: Isolation) -> Result<OptimisticTransaction> {
        OptimisticTransaction::new(&self.shared, isolation)
    }

    /// Begins a value that is written in parts, for a collection that exists; see [`StagedValue`].
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such collection, [`Error::ReadOnly`], [`Error::Poisoned`].
    pub fn stage_value(&self, collection: &str) -> Result<StagedValue> {
        StagedValue::new(&self.shared, collection)
    }

    /// Runs `work` in a serializable optimistic transaction and commits it.
    ///
    /// After a conflict `work` runs again, up to `attempts` times in total, so it must not have
    /// side effects outside the transaction. An error from `work` rolls the transaction back; it may be
    /// one of the application's that an [`Error`] turns into.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mangrove_engine::{Database, Durability, Error, Options, storage::MemoryStorage};
    /// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
    /// let (count, _) = database.transact(Durability::Strict, 100, |transaction| {
    ///     let count = transaction.get("counters", b"visits")?.map_or(0, |value| value[0]) + 1;
    ///     transaction.set("counters", b"visits", &[count])?;
    ///     Ok::<_, Error>(count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work` and [`OptimisticTransaction::commit`]; [`Error::Conflict`] after the last attempt.
    pub fn transact<T, E: From<Error>>(
        &self,
        durability: Durability,
        attempts: usize,
        mut work: impl FnMut(&mut OptimisticTransaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<(T, CommitInfo), E> {
        let mut left = attempts.max(1);
        loop {
            left -= 1;
            let mut transaction = self.transaction(Isolation::Serializable)?;
            let result = work(&mut transaction)?;
            match transaction.commit(durability) {
                Err(Error::Conflict { .. }) if left > 0 => {
                    // The conflicting commit may still wait for its flush; a snapshot taken before
                    // that would conflict again.
                    let newest = self.shared.newest().version;
                    self.shared.wait_for_version(newest, CONFLICT_WAIT);
                }
                committed => return Ok((result, committed?)),
            }
        }
    }

    /// Stores one record as one commit, O(log n).
    ///
    /// # Errors
    /// As [`begin`](Self::begin), [`ExclusiveTransaction::set`] and [`ExclusiveTransaction::commit`].
    pub fn set(&self, collection: &str, key: &[u8], value: &[u8], durability: Durability) -> Result<CommitInfo> {
        self.shared.check_record(collection, key, value.len(), None)?;
        let mut transaction = self.begin()?;
        transaction.put(collection, key, value)?;
        transaction.commit(durability)
    }

    /// Applies a batch as one commit.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), [`ExclusiveTransaction::set`] and [`ExclusiveTransaction::commit`]; no
    /// part of the batch is visible then.
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<CommitInfo> {
        let mut transaction = self.begin()?;
        transaction.apply(batch)?;
        transaction.commit(durability)
    }

    /// Makes everything committed so far durable in the cheapest way: by flushing the log, or by a
    /// checkpoint if the log does not have all commits.
    ///
    /// # Errors
    /// [`Error::StorageFull`] and [`Error::Io`]: the commits stay visible. [`Error::Poisoned`]
    /// after a failed flush; [`Error::Evicted`].
    pub fn flush(&self) -> Result<()> {
        let mut writer = self.shared.writable()?;
        self.shared.check_names(0)?;
        let newest = self.shared.newest().version;
        if writer.is_unlogged() {
            return writer.checkpoint_if_behind(&self.shared);
        }
        drop(writer);
        self.shared.make_durable(newest)
    }

    /// Begins a log flush that the caller performs, covering all commits appended so far.
    ///
    /// For hosts that flush files asynchronously. `None` if no commit waits for a log flush, or
    /// another flush is under way.
    ///
    /// Until it ends, any other thread that needs a flush waits for it.
    #[must_use]
    pub fn begin_flush(&self) -> Option<OpenFlush> {
        OpenFlush::begin(&self.shared)
    }

    /// Whether relaxed commits wait for a [`flush`](Self::flush). A host that promises a bound on
    /// that wait must flush within it.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.shared.flush.is_pending()
    }

    /// Whether submitted commits wait for a flush, until which they are invisible.
    #[must_use]
    pub fn awaits_flush(&self) -> bool {
        self.shared.published().awaited().is_some()
    }

    /// Removes up to `limit` expired records in one commit; returns how many it found due.
    ///
    /// Fewer than `limit` means that none are left. Expired records are already invisible; purging
    /// reclaims their space, and conflicts with no transaction. O(log n) each.
    ///
    /// # Errors
    /// As [`begin`](Self::begin) and [`ExclusiveTransaction::commit`].
    pub fn purge_expired(&self, limit: usize) -> Result<usize> {
        let mut transaction = self.begin()?;
        let due = transaction.purge(limit)?;
        if due == 0 {
            return Ok(0);
        }
        transaction.commit(Durability::Relaxed)?;
        Ok(due)
    }

    /// Merges a few nodes' worth of committed changes; returns whether there is more to merge.
    ///
    /// Call it when the host is idle. Reads of merged records look only into the tree, and the
    /// memory goes back to the cache. Changes that would rewrite too much of the trees now are left
    /// to later commits.
    ///
    /// # Errors
    /// Storage errors and corruption: nothing is lost, and a later commit retries.
    pub fn merge_slice(&self) -> Result<bool> {
        self.shared.writable()?.merge_idle(&self.shared)
    }

    /// Merges frozen memtables concurrently with commits, on a dedicated thread of the host.
    ///
    /// Runs until a sixteenth of the trees is done, or a commit, a checkpoint or a verification
    /// needs the merge. Returns whether there may be more; if not,
    /// [`await_merge`](Self::await_merge) waits for the next merge.
    /// [`Background`](crate::Background) runs such a thread. Without one, commits do the merging
    /// themselves.
    ///
    /// # Errors
    /// Storage errors and corruption: nothing is lost, and a later commit retries.
    pub fn merge_beside(&self) -> Result<bool> {
        Writer::merge_beside(&self.shared)
    }

    /// Waits until [`merge_beside`](Self::merge_beside) may have work, for at most `timeout`.
    pub fn await_merge(&self, timeout: Duration) {
        self.shared.merge_thread.await_work(timeout);
    }

    /// Counts threads that call [`merge_beside`](Self::merge_beside): commits leave the merging to
    /// them while they keep up.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn count_merger(&self, is_there: bool) {
        self.shared.merge_thread.count_merger(is_there);
        self.shared.merge_thread.announce();
    }

    /// Bytes of blocks written to the data file since it was opened.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn block_bytes_written(&self) -> u64 {
        self.shared
            .pager
            .blocks
            .bytes_written
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Flushes all writes to the data file so far. After a failure all later commits are
    /// refused.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn flush_blocks(&self) -> Result<()> {
        self.shared.flush.flush_alone(self.shared.pager.blocks.file())
    }

    /// Writes everything committed so far to the data file, so that recovery does not need the log.
    ///
    /// # Errors
    /// [`Error::StorageFull`] and [`Error::Io`]: the commits stay visible and can be made durable
    /// later, unless the error is [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<()> {
        let mut writer = self.shared.writable()?;
        self.shared.check_names(0)?;
        writer.checkpoint_if_behind(&self.shared)
    }

    /// Commit sequence number of the newest commit, 0 for a new database.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.current().version
    }

    /// All collections, ordered by name.
    #[must_use]
    pub fn collections(&self) -> Vec<CollectionInfo> {
        self.shared.current().infos(&self.shared.pager)
    }

    /// Checks a record without reading the database: the collection's name, and the lengths of key
    /// and value. The longest key with an expiry is eight bytes shorter than the longest one
    /// without.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::KeyTooLarge`] and [`Error::ValueTooLarge`].
    pub fn check_record(&self, collection: &str, key: &[u8], value_len: usize, expires_at: Option<u64>) -> Result<()> {
        self.shared.check_record(collection, key, value_len, expires_at)
    }

    /// Longest key, in bytes, of a record that does not expire.
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        self.shared.config.limits.max_key_bytes
    }

    /// Longest key, in bytes, of a record that expires: its hint holds the key and the time.
    #[must_use]
    pub fn max_expiring_key_bytes(&self) -> usize {
        self.max_key_bytes() - expiry::HINT_BYTES
    }

    /// Statistics of the open database.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats::collect(&self.shared)
    }

    /// Makes everything durable, empties the log and releases the files. They stay open while
    /// snapshots exist.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint). The handle is consumed in any case.
    pub fn close(self) -> Result<()> {
        if self.shared.config.read_only {
            return Ok(());
        }
        self.shared.writable()?.close(&self.shared)
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Database>();
    send_and_sync::<Snapshot>();
    send_and_sync::<Cursor>();
};
