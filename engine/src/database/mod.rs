//! The database: opening, versions, snapshots, collections, upkeep.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::block::Compression;
use crate::cache::Pager;
use crate::checkpoint::Age;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::log::GroupFlush;
use crate::node::Limits;
use crate::node::cell::MAX_VALUE_BYTES;
use crate::storage::Storage;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::transaction::{
    CommitInfo, Draft, Durability, Isolation, Transaction, WriteBatch, WriteTransaction, check_name, expiry,
    set_in_place,
};

mod beside;
mod catalog;
mod clients;
mod collections;
mod compact;
mod cursor;
mod feed;
mod fence;
mod history;
mod layout;
mod open;
mod open_flush;
mod ours;
mod recover;
mod room;
mod snapshot;
mod stats;
mod verify;
mod writer;

pub use catalog::CollectionInfo;
pub(crate) use catalog::{Collection, MAX_CODEC_BYTES, MAX_NAME_BYTES, Version};
pub use compact::{CompactEnd, CompactOptions, CompactProgress, CompactReport};
pub use cursor::Cursor;
pub(crate) use feed::Feed;
pub use feed::{Change, Changes, Commit};
pub(crate) use history::{History, Missed};
pub use layout::{ExtentKind, LayoutPart, LayoutScan};
pub use open_flush::OpenFlush;
pub use ours::is_database_file;
pub use recover::{
    Completeness, DamagedRange, LogState, LostRecord, RecoverPhase, RecoverProgress, RecoverReport,
    RecoveredCollection, RecoveredLog, RecoveredRoot, recover,
};
pub use snapshot::{Snapshot, Tree};
pub use stats::Stats;
pub use verify::{Verification, VerifyProgress, VerifyReport};
pub(crate) use writer::{Writer, write_roots};

/// Longest wait before a transaction is run again.
const CONFLICT_WAIT: Duration = Duration::from_millis(100);

/// Name of the file that holds the blocks.
pub(crate) const DATA_FILE: &str = "data";

/// How to open a database. `unit_bytes`, `node_bytes`, `compression`, `database_id` and `log_bytes` count at creation only.
#[derive(Clone, Debug)]
pub struct Options {
    /// Create the database if it is not there. Default `true`.
    pub create: bool,
    /// Fail if it is there already. Default `false`.
    pub exclusive: bool,
    /// Refuse all writes. Default `false`.
    pub read_only: bool,
    /// Bound of clean and dirty pages in memory, in bytes. Default 32 MiB, at least 64 KiB.
    pub cache_bytes: usize,
    /// Allocation unit: a power of two from 512 to 65,536 bytes. Default 4,096.
    pub unit_bytes: u32,
    /// Node size with its block header: 256 to 65,536 bytes. Default 16,384. Keys are limited to a quarter of it.
    pub node_bytes: u32,
    /// Block compression. Default LZ4.
    pub compression: Compression,
    /// Identity of the database; `None`: a random one. Hosts without an entropy source in the standard library (WebAssembly) give one.
    pub database_id: Option<u128>,
    /// Length of the log file at most: two halves of 4 KiB to 1 GiB, or 0 for no log, which makes every durable commit a checkpoint.
    /// Default 32 MiB.
    pub log_bytes: u32,
    /// Bytes that the data file is kept longer than its content, so that records can be removed, and checkpoints made, where the storage has
    /// no room left. With it a commit that stores something fails, before it is in the log, where a checkpoint of it would not find room.
    /// At least 32 nodes. It is the length that is reserved: on a storage that takes room only for what is written (sparse files) it is worth nothing.
    /// 0: none. Default 0.
    pub reserve_bytes: u32,
    /// Random number that tells this opening from others; `None`: from the system. Hosts without an entropy source give one.
    pub session: Option<u64>,
    /// Keep a feed of the last so many commits in the database, from this opening on for good; 0 leaves that as it is. Default 0.
    /// Each commit's changes are then stored a second time.
    pub feed_commits: u64,
    /// Decides which records have expired. Default: the system's.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            exclusive: false,
            read_only: false,
            cache_bytes: 32 << 20,
            unit_bytes: 4096,
            node_bytes: 16384,
            compression: Compression::Lz4,
            database_id: None,
            log_bytes: 32 << 20,
            reserve_bytes: 0,
            session: None,
            feed_commits: 0,
            clock: Clock::default(),
        }
    }
}

/// What does not change while a database is open.
pub(crate) struct Config {
    pub database_id: u128,
    pub limits: Limits,
    pub compression: Compression,
    pub cache_bytes: usize,
    pub reserve_bytes: u32,
    pub read_only: bool,
    pub clock: Clock,
    /// Somebody else writes to the files meanwhile.
    pub beside_writer: bool,
}

impl Config {
    /// Most bytes that changed pages may take: the rest is for reading the pages that the next changes go to.
    pub(crate) fn max_dirty_bytes(&self) -> usize {
        self.cache_bytes / 4 * 3
    }
}

/// A version whose log record is written but maybe not flushed.
struct Staged {
    version: Arc<Version>,
    needs_flush: bool,
}

/// The newest visible version, those that wait to become visible, and those that living snapshots hold.
pub(crate) struct Published {
    pub current: Arc<Version>,
    /// Versions after `current`, ascending; the first needs a flush.
    staged: VecDeque<Staged>,
    /// Ages with the number of snapshots of each, ascending: a new snapshot is of the newest version.
    live: Vec<(Age, usize)>,
}

impl Published {
    pub(crate) fn new(current: Arc<Version>) -> Self {
        Self {
            current,
            staged: VecDeque::new(),
            live: Vec::new(),
        }
    }

    /// The version that the next transaction builds on.
    pub(crate) fn newest(&self) -> &Arc<Version> {
        self.staged.back().map_or(&self.current, |staged| &staged.version)
    }

    /// Whether nobody can see the newest version's pages but the writer.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.live.is_empty() && self.staged.is_empty()
    }

    /// Adds a version; returns whether it is visible at once.
    pub(crate) fn stage(&mut self, version: Arc<Version>, needs_flush: bool) -> bool {
        if self.staged.is_empty() && !needs_flush {
            self.current = version;
            return true;
        }
        self.staged.push_back(Staged { version, needs_flush });
        false
    }

    /// Makes a version visible that is newer than all others and durable.
    pub(crate) fn install(&mut self, version: Arc<Version>) {
        self.staged.clear();
        self.current = version;
    }

    /// Makes visible what is durable up to `durable`, and what follows it without needing a flush.
    pub(crate) fn publish(&mut self, durable: u64) {
        while let Some(next) = self.staged.front() {
            if next.needs_flush && next.version.version > durable {
                break;
            }
            if let Some(next) = self.staged.pop_front() {
                self.current = next.version;
            }
        }
    }

    /// Newest version that waits for a flush.
    pub(crate) fn awaited(&self) -> Option<u64> {
        let waiting = self.staged.iter().rev().find(|staged| staged.needs_flush);
        waiting.map(|staged| staged.version.version)
    }

    /// Counts a snapshot of the newest version.
    pub(crate) fn pin(&mut self) -> Arc<Version> {
        let age = self.current.age();
        match self.live.last_mut() {
            Some((newest, count)) if *newest == age => *count += 1,
            _ => self.live.push((age, 1)),
        }
        Arc::clone(&self.current)
    }

    pub(crate) fn unpin(&mut self, age: Age) {
        if let Ok(at) = self.live.binary_search_by_key(&age, |(age, _)| *age) {
            self.live[at].1 -= 1;
            if self.live[at].1 == 0 {
                self.live.remove(at);
            }
        }
    }

    pub(crate) fn snapshots(&self) -> usize {
        self.live.iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn oldest(&self) -> Option<Age> {
        self.live.first().map(|(age, _)| *age)
    }

    pub(crate) fn any_between(&self, first: u64, last: u64) -> bool {
        self.live.iter().any(|(age, _)| (first..=last).contains(&age.version))
    }
}

/// State that handles, snapshots and the writer share. Lock order: `writer` before `published` before the page table; the lock inside
/// `flush` is taken last.
pub(crate) struct Shared {
    pub config: Config,
    pub pager: Pager,
    pub flush: GroupFlush,
    published: Mutex<Published>,
    writer: Mutex<Writer>,
    history: Mutex<History>,
    feed: Mutex<Feed>,
    /// Notified when a version becomes visible.
    visible: Condvar,
}

/// Locks without regard to poison: no lock here is held while a value is half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        lock(&self.published)
    }

    pub(crate) fn current(&self) -> Arc<Version> {
        Arc::clone(&self.published().current)
    }

    /// The version that the next transaction builds on. It may not be visible yet.
    pub(crate) fn newest(&self) -> Arc<Version> {
        Arc::clone(self.published().newest())
    }

    /// Locked after `writer` and before `published`.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Checks what can be said about a record without looking at the database. The key is a stored one.
    pub(crate) fn check_record(
        &self,
        collection: &str,
        key: &[u8],
        value_len: usize,
        expires: Option<u64>,
    ) -> Result<()> {
        check_name(collection, self)?;
        self.check_key(key)?;
        if expires.is_some() {
            self.check_key(&expiry::hint(0, key))?;
        }
        if value_len > MAX_VALUE_BYTES {
            return Err(Error::ValueTooLarge {
                len_bytes: value_len,
                max_bytes: MAX_VALUE_BYTES,
            });
        }
        Ok(())
    }

    /// Locked after `writer` and before `published`.
    pub(crate) fn feed(&self) -> MutexGuard<'_, Feed> {
        lock(&self.feed)
    }

    /// Waits until `version` is visible; not longer than `timeout`.
    fn wait_for_version(&self, version: u64, timeout: Duration) {
        let is_missing = |published: &mut Published| published.current.version < version;
        // Either way the caller looks for itself.
        let _ = self.visible.wait_timeout_while(self.published(), timeout, is_missing);
    }

    /// Tells those who wait that a version may have become visible.
    pub(crate) fn notify(&self) {
        self.visible.notify_all();
    }

    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// The writer, if writing is possible.
    pub(crate) fn writable(&self) -> Result<MutexGuard<'_, Writer>> {
        if self.config.read_only {
            return Err(Error::ReadOnly);
        }
        let writer = lock(&self.writer);
        match self.flush.failure() {
            Some(cause) => Err(crate::log::refusal(&cause, self.pager.blocks.file())),
            None => Ok(writer),
        }
    }

    /// Returns when all commits up to `version` are durable, and makes them visible. Their records were handed to the log.
    pub(crate) fn make_durable(&self, version: u64) -> Result<()> {
        self.flush.wait(version, self.pager.blocks.file())?;
        self.publish_durable();
        Ok(())
    }

    /// Makes visible what has become durable.
    fn publish_durable(&self) {
        let durable = self.flush.durable_version();
        self.published().publish(durable);
        self.notify();
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        let max_bytes = self.config.limits.max_key_bytes;
        if key.len() > max_bytes {
            return Err(Error::KeyTooLarge {
                len_bytes: key.len(),
                max_bytes,
            });
        }
        Ok(())
    }
}

/// An open database. It is `Send + Sync`: any number of threads read, one writes at a time, and readers never wait for it.
///
/// Dropping it without [`close`](Self::close) is safe, but loses commits made with [`Durability::None`] since the last checkpoint, and the
/// next opening has to read the log.
pub struct Database {
    shared: Arc<Shared>,
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

    /// Stores one record as one commit, the quickest way there is without a wait for the disk: with [`Durability::Relaxed`] or
    /// [`Durability::None`], and while no snapshot lives, it is changed in place. O(log n).
    ///
    /// # Errors
    /// As [`begin`](Self::begin), [`WriteTransaction::set`] and [`WriteTransaction::commit`].
    pub fn set(&self, collection: &str, key: &[u8], value: &[u8], durability: Durability) -> Result<CommitInfo> {
        self.shared.check_record(collection, key, value.len(), None)?;
        let mut writer = self.shared.writable()?;
        let done = set_in_place(&self.shared, &mut writer, collection, key, value, durability)?;
        if let Some(info) = done {
            return Ok(info);
        }
        drop(writer);
        let mut transaction = self.begin()?;
        transaction.set(collection, key, value)?;
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
        if writer.unlogged {
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
        let mut state = (*self.shared.newest()).clone();
        if writer.durable.version == state.version {
            return Ok(());
        }
        let mut draft = Draft::new(state.version);
        writer.checkpoint(&self.shared, &mut state, &mut draft)
    }

    /// Commit sequence number of the newest commit, 0 for a new database.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.current().version
    }

    /// All collections in the order of their names.
    #[must_use]
    pub fn collections(&self) -> Vec<CollectionInfo> {
        self.shared.current().infos()
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

    /// Begins to look at what each part of the data file holds and how full the nodes are, as it is now. The space that this state takes is
    /// kept until the scan is dropped. The catalog is read at once, the rest in slices; waits for the writer.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mangrove_engine::{Database, Durability, ExtentKind, Options, storage::MemoryStorage};
    /// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
    /// database.set("cities", b"Quito", b"2.0 M", Durability::Strict)?;
    /// database.checkpoint()?;
    /// let mut scan = database.layout_scan()?;
    /// let mut leaves = 0;
    /// while let Some(parts) = scan.next_parts(1000)? {
    ///     leaves += parts.iter().filter(|part| part.kind == ExtentKind::Leaf).count();
    /// }
    /// assert_eq!(leaves, 1);
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors, corruption of the catalog, [`Error::Stale`] beside a writer.
    pub fn layout_scan(&self) -> Result<LayoutScan> {
        LayoutScan::new(&self.shared)
    }

    /// Reads every block the newest version reaches and checks all of them: checksums, order, fences, counts, and that each unit
    /// of the file is used exactly once or free. Waits for the writer. O(size of the database).
    ///
    /// # Errors
    /// Only what keeps it from looking at all, such as [`Error::Stale`] beside a writer; damage is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        let report = self.verify_with(&mut |_| ControlFlow::Continue(()))?;
        Ok(report.unwrap_or_default())
    }

    /// As [`verify`](Self::verify); `progress` is called before each node and each value outside of nodes, and its break ends it: then there is no report.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_with(
        &self,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> Result<Option<VerifyReport>> {
        let report = verify::verify(&self.shared, progress);
        if let Some(report) = &report {
            verify::check_stale(&self.shared, report)?;
        }
        Ok(report)
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
