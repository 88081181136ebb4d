//! The database: opening, its handle, its options, and the feed of its commits.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::snapshot::{Cursor, Snapshot};
use crate::state::{CollectionInfo, Shared, Writer, expiry};
use crate::storage::Storage;
use crate::sync::MutexGuard;
use crate::transaction::{CommitInfo, Durability, Isolation, Transaction, WriteBatch, WriteTransaction};

mod beside;
mod feed;
mod fence;
mod open;
mod open_flush;
mod options;
mod ours;
mod stats;

pub use feed::Changes;
pub(crate) use open::recover_from;
pub use open_flush::OpenFlush;
pub use options::Options;
pub use ours::is_database_file;
pub use stats::Stats;

/// Longest wait before a transaction is run again.
const CONFLICT_WAIT: Duration = Duration::from_millis(100);

/// An open database. It is `Send + Sync`: any number of threads read, one writes at a time, and readers never wait for it.
///
/// Dropping it without [`close`](Self::close) is safe, but loses commits made with [`Durability::None`] since the last checkpoint, and the
/// next opening has to read the log.
pub struct Database {
    pub(crate) shared: Arc<Shared>,
    /// Only for one that is read beside a writer.
    reopen: Option<beside::Reopen>,
}

impl Database {
    /// Opens or creates the database in `storage`.
    ///
    /// A failed open changes nothing in the storage.
    ///
    /// # Errors
    /// [`Error::NotFound`] and [`Error::AlreadyExists`] as the options say, [`Error::Locked`] if it is open elsewhere,
    /// [`Error::NotADatabase`], [`Error::VersionUnsupported`], [`Error::Corrupt`], [`Error::KeyOrderUnsupported`], [`Error::InvalidArgument`] for options out of range,
    /// and the storage's own errors.
    #[allow(clippy::needless_pass_by_value, reason = "the database owns its storage")]
    pub fn open(storage: Arc<dyn Storage>, options: Options) -> Result<Self> {
        let reopen = if storage.is_beside_writer() {
            Some(beside::Reopen::new(Arc::clone(&storage), options.clone())?)
        } else {
            None
        };
        let shared = match &reopen {
            Some(reopen) => reopen.open()?,
            None => open::open(&*storage, &options)?,
        };
        let database = Self {
            shared: Arc::new(shared),
            reopen,
        };
        if options.feed_commits > 0 && !options.read_only {
            let mut transaction = database.begin()?;
            transaction.keep_feed(options.feed_commits)?;
            transaction.commit(Durability::Strict)?;
        }
        Ok(database)
    }

    /// A read view of the newest version, O(1). It stays as it is whatever is committed later.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.shared)
    }

    /// Begins an exclusive write transaction; waits while another thread has one.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Poisoned`].
    pub fn begin(&self) -> Result<WriteTransaction<'_>> {
        WriteTransaction::new(&self.shared)
    }

    /// Follows the commits after version `since`, or from now on. Where a feed is kept ([`Options::feed_commits`]), `since` may be as far
    /// back as that reaches, across openings; else commits are kept in memory for those who follow, up to 32 MiB.
    ///
    /// # Errors
    /// [`Error::TruncatedFeed`] if commits after `since` are no longer kept.
    pub fn changes(&self, since: Option<u64>) -> Result<Changes> {
        Changes::new(&self.shared, since)
    }

    /// Begins an optimistic transaction, which locks nothing. `isolation` says what may make its commit fail.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn transaction(&self, isolation: Isolation) -> Result<Transaction> {
        Transaction::new(&self.shared, isolation)
    }

    /// Runs `work` in a serializable optimistic transaction and commits it. After a conflict it is run again, up to `attempts` times in
    /// all, so it may only have effects inside the transaction. An error of `work` undoes it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mangrove_engine::{Database, Durability, Options, storage::MemoryStorage};
    /// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
    /// let (count, _) = database.transact(Durability::Strict, 100, |transaction| {
    ///     let count = transaction.get("counters", b"visits")?.map_or(0, |value| value[0]) + 1;
    ///     transaction.set("counters", b"visits", &[count])?;
    ///     Ok(count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work` and of [`Transaction::commit`]; [`Error::Conflict`] after the last attempt.
    pub fn transact<T>(
        &self,
        durability: Durability,
        attempts: usize,
        mut work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, CommitInfo)> {
        let mut left = attempts.max(1);
        loop {
            left -= 1;
            let mut transaction = self.transaction(Isolation::Serializable)?;
            let result = work(&mut transaction)?;
            match transaction.commit(durability) {
                Err(Error::Conflict { .. }) if left > 0 => {
                    // What it ran into may wait for its flush; until then a new snapshot would run into it again.
                    let newest = self.shared.newest().version;
                    self.shared.wait_for_version(newest, CONFLICT_WAIT);
                }
                committed => return committed.map(|info| (result, info)),
            }
        }
    }

    /// Stores one record as one commit, O(log n).
    ///
    /// # Errors
    /// As [`begin`](Self::begin), [`WriteTransaction::set`] and [`WriteTransaction::commit`].
    pub fn set(&self, collection: &str, key: &[u8], value: &[u8], durability: Durability) -> Result<CommitInfo> {
        self.shared.check_record(collection, key, value.len(), None)?;
        let mut transaction = self.begin()?;
        transaction.put(collection, key, value)?;
        transaction.commit(durability)
    }

    /// Applies a batch as one commit.
    ///
    /// # Errors
    /// As [`begin`](Self::begin), [`WriteTransaction::set`] and [`WriteTransaction::commit`]; nothing of the batch is visible then.
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<CommitInfo> {
        let mut transaction = self.begin()?;
        transaction.apply(batch)?;
        transaction.commit(durability)
    }

    /// Makes everything committed so far durable, in the cheapest way: by a flush of the log, or by a checkpoint where commits are
    /// missing from the log.
    ///
    /// # Errors
    /// [`Error::StorageFull`] and [`Error::Io`]: the commits stay visible. [`Error::Poisoned`] after a failed flush.
    pub fn flush(&self) -> Result<()> {
        let writer = self.shared.writable()?;
        let newest = self.shared.newest().version;
        if writer.is_unlogged() {
            return self.checkpoint_by(writer);
        }
        drop(writer);
        self.shared.make_durable(newest)
    }

    /// Begins a flush of the log, of all commits that were handed to it by now, which the caller does: for hosts that flush files without
    /// waiting. `None` if nothing waits for a flush of the log, or another flush is under way.
    ///
    /// While it is under way nobody else flushes; whoever has to, waits for it.
    #[must_use]
    pub fn begin_flush(&self) -> Option<OpenFlush> {
        OpenFlush::begin(&self.shared)
    }

    /// Whether relaxed commits wait for a [`flush`](Self::flush). A host that promises a bound for them calls that within the bound.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.shared.flush.is_pending()
    }

    /// Removes up to `limit` expired records in one commit; returns how many it found due. Less than `limit`: there are no more. They are
    /// invisible anyway; this gives their space back, and is no conflict for any transaction. O(log n) each.
    ///
    /// # Errors
    /// As [`begin`](Self::begin) and [`WriteTransaction::commit`].
    pub fn purge_expired(&self, limit: usize) -> Result<usize> {
        let mut transaction = self.begin()?;
        let due = transaction.purge(limit)?;
        if due == 0 {
            return Ok(0);
        }
        transaction.commit(Durability::Relaxed)?;
        Ok(due)
    }

    /// Merges a few nodes' worth of what was committed into the trees, in time that the host does not need for anything else; tells whether there is more.
    /// Reads of what is merged look into the tree only, and the memory goes back to the cache. What would be written many times over now is left for the
    /// commits to come.
    ///
    /// # Errors
    /// Storage errors and corruption: nothing is lost, and a later commit tries again.
    pub fn merge_slice(&self) -> Result<bool> {
        self.shared.writable()?.merge_idle(&self.shared)
    }

    /// Merges beside commits what is frozen, for a thread of the host's own: until a sixteenth of the trees is done, or a commit, a checkpoint or a
    /// verification needs the merge. Returns whether there may be more; then [`await_merge`](Self::await_merge) waits for the next. [`Background`](crate::Background)
    /// has such a thread. Without one commits merge themselves.
    ///
    /// # Errors
    /// Storage errors and corruption: nothing is lost, and a later commit tries again.
    pub fn merge_beside(&self) -> Result<bool> {
        Writer::merge_beside(&self.shared)
    }

    /// Waits until there may be something for [`merge_beside`](Self::merge_beside), not longer than `timeout`.
    pub fn await_merge(&self, timeout: Duration) {
        self.shared.lending.await_work(timeout);
    }

    /// Tells commits that a thread calls [`merge_beside`](Self::merge_beside), or that it no longer does, so that they leave the merging to it while it
    /// keeps up.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn count_merger(&self, is_there: bool) {
        self.shared.lending.count_merger(is_there);
        self.shared.lending.announce();
    }

    /// Bytes written to the data file since it was opened.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn block_bytes_written(&self) -> u64 {
        self.shared
            .pager
            .blocks
            .bytes_written
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Flushes what was written to the data file so far. A failure refuses all later commits.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn flush_blocks(&self) -> Result<()> {
        self.shared.flush.flush_alone(self.shared.pager.blocks.file())
    }

    /// Writes everything committed so far to the data file, so that the log is not needed to recover it.
    ///
    /// # Errors
    /// [`Error::StorageFull`] and [`Error::Io`]: the commits stay visible and can be made durable later, unless the error is
    /// [`Error::Poisoned`].
    pub fn checkpoint(&self) -> Result<()> {
        let writer = self.shared.writable()?;
        self.checkpoint_by(writer)
    }

    fn checkpoint_by(&self, mut writer: MutexGuard<'_, Writer>) -> Result<()> {
        if writer.durable.version == self.shared.newest().version {
            return Ok(());
        }
        writer.checkpoint_newest(&self.shared, false)
    }

    /// Commit sequence number of the newest commit, 0 for a new database.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.current().version
    }

    /// All collections in the order of their names.
    #[must_use]
    pub fn collections(&self) -> Vec<CollectionInfo> {
        self.shared.current().infos(&self.shared.pager)
    }

    /// Checks what can be said about a record without looking at the database: the collection's name and the lengths of key and value. A
    /// key with an expiry may be eight bytes shorter than one without.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::KeyTooLarge`] and [`Error::ValueTooLarge`].
    pub fn check_record(&self, collection: &str, key: &[u8], value_len: usize, expires_at: Option<u64>) -> Result<()> {
        self.shared.check_record(collection, key, value_len, expires_at)
    }

    /// Longest key in bytes of a record that does not expire.
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        self.shared.config.limits.max_key_bytes
    }

    /// Longest key in bytes of a record that expires: its hint has the time as well.
    #[must_use]
    pub fn max_expiring_key_bytes(&self) -> usize {
        self.max_key_bytes() - expiry::HINT_BYTES
    }

    /// Figures of the running database.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats::collect(&self.shared)
    }

    /// Makes everything durable, empties the log and gives the files back. The files stay open while snapshots of it live.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint). The handle is gone in any case.
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
