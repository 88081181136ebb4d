//! State shared by the handles, snapshots and the writer of an open database.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

#[cfg(feature = "encryption")]
use super::Reencryption;
use super::merge_thread::MergeThread;
use super::{Feed, History, MAX_NAME_BYTES, Published, Version, Writer, expiry};
use crate::block::Compression;
use crate::cipher::Key;
use crate::clock::Clock;
use crate::error::{Error, Result, TooLarge};
use crate::locks::{Condvar, Mutex, MutexGuard};
use crate::log::GroupFlush;
use crate::node::Limits;
use crate::node::cell::MAX_VALUE_BYTES;
use crate::pages::{Encryption, Pager};

/// Settings that stay constant while a database is open.
pub(crate) struct Config {
    pub database_id: u128,
    pub limits: Limits,
    pub compression: Compression,
    pub cache_bytes: usize,
    pub reserve_bytes: u32,
    pub read_only: bool,
    pub clock: Clock,
    /// A writer elsewhere may change the files meanwhile.
    pub beside_writer: bool,
}

/// The key of an encrypted database, and the data key sealed under it.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub key: Key,
    pub encryption: Encryption,
}

impl Config {
    /// Maximum bytes of the active memtables. The frozen ones take as many when their merge begins.
    pub(crate) fn max_active_bytes(&self) -> usize {
        self.cache_bytes / 8 * 3
    }

    /// Maximum bytes of all memtables: what they leave of the cache is for the pages that changes touch.
    pub(crate) fn max_memtable_bytes(&self) -> usize {
        2 * self.max_active_bytes()
    }
}

/// State shared by handles, snapshots and the writer. Lock order: `writer` before `published`
/// before the page table; the locks inside `flush` and `merge_thread` and that of the free space are
/// taken last. A thread that has the merge takes neither of the first two.
pub(crate) struct Shared {
    pub config: Config,
    pub pager: Pager,
    pub flush: GroupFlush,
    published: Mutex<Published>,
    writer: Mutex<Writer>,
    history: Mutex<History>,
    feed: Mutex<Feed>,
    pub merge_thread: MergeThread,
    /// `None`: the database is not encrypted.
    credentials: Mutex<Option<Credentials>>,
    #[cfg(feature = "encryption")]
    reencryption: Mutex<Reencryption>,
    /// Notified when a version becomes visible.
    visible: Condvar,
}

/// Locks, ignoring poisoning: no lock here is held while a value is half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Creates the state of a database in which nothing has been read or written yet.
    pub(crate) fn new(config: Config, pager: Pager, flush: GroupFlush, version: Arc<Version>, writer: Writer) -> Self {
        Self {
            config,
            pager,
            flush,
            published: Mutex::new(Published::new(version)),
            writer: Mutex::new(writer),
            history: Mutex::default(),
            feed: Mutex::default(),
            merge_thread: MergeThread::default(),
            credentials: Mutex::new(None),
            #[cfg(feature = "encryption")]
            reencryption: Mutex::default(),
            visible: Condvar::new(),
        }
    }

    /// Locked before `writer`.
    #[cfg(feature = "encryption")]
    pub(crate) fn reencryption(&self) -> MutexGuard<'_, Reencryption> {
        lock(&self.reencryption)
    }

    pub(crate) fn credentials(&self) -> Option<Credentials> {
        lock(&self.credentials).clone()
    }

    pub(crate) fn set_credentials(&self, credentials: Option<Credentials>) {
        *lock(&self.credentials) = credentials;
    }

    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        lock(&self.published)
    }

    pub(crate) fn current(&self) -> Arc<Version> {
        Arc::clone(&self.published().current)
    }

    /// The version that the next transaction builds on; it may not be visible yet.
    pub(crate) fn newest(&self) -> Arc<Version> {
        Arc::clone(self.published().newest())
    }

    /// Locked after `writer` and before `published`.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Checks a record as far as possible without reading the database.
    pub(crate) fn check_record(
        &self,
        collection: &str,
        key: &[u8],
        value_len: usize,
        expires: Option<u64>,
    ) -> Result<()> {
        check_name(collection, self)?;
        self.check_lengths(key, value_len, expires.is_some())
    }

    /// Checks the lengths of a record's key and value.
    pub(crate) fn check_lengths(&self, key: &[u8], value_len: usize, expires: bool) -> Result<()> {
        self.check_key_len(key.len())?;
        if value_len > MAX_VALUE_BYTES {
            return Err(Error::value_too_large(value_len, MAX_VALUE_BYTES));
        }
        if expires {
            // A hint is the expiry followed by the key.
            self.check_key_len(expiry::HINT_BYTES + key.len())?;
        }
        Ok(())
    }

    /// Locked after `writer` and before `published`.
    pub(crate) fn feed(&self) -> MutexGuard<'_, Feed> {
        lock(&self.feed)
    }

    /// Waits until `version` is visible, at most for `timeout`.
    pub(crate) fn wait_for_version(&self, version: u64, timeout: Duration) {
        let is_missing = |published: &mut Published| published.current.version < version;
        // Either way, the caller checks for itself.
        let _ = self.visible.wait_timeout_while(self.published(), timeout, is_missing);
    }

    /// Wakes waiters, because a version may have become visible.
    pub(crate) fn notify(&self) {
        self.visible.notify_all();
    }

    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// Locks the writer, if writing is possible.
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

    /// Checks that the names of the files still lead to them. If not, nothing more is written.
    pub(crate) fn check_names(&self, max_age_ms: u32) -> Result<()> {
        let checked = self.pager.blocks.file().check_name(max_age_ms);
        checked.inspect_err(|error| self.flush.fail(&error.to_string()))
    }

    /// Waits until all commits up to `version` are durable, and makes them visible. Their records
    /// must already have been handed to the log.
    pub(crate) fn make_durable(&self, version: u64) -> Result<()> {
        self.flush.wait(version, self.pager.blocks.file())?;
        self.publish_durable();
        Ok(())
    }

    /// Makes the commits in the log durable, and them and those behind them that need no flush visible.
    pub(crate) fn make_log_durable(&self) -> Result<()> {
        self.flush.flush_appended(self.pager.blocks.file())?;
        self.publish_durable();
        Ok(())
    }

    /// Makes durable versions visible.
    pub(crate) fn publish_durable(&self) {
        let durable = self.flush.durable_version();
        self.published().publish(durable);
        self.notify();
    }

    pub(crate) fn check_key_len(&self, len_bytes: usize) -> Result<()> {
        let max_bytes = self.config.limits.max_key_bytes;
        if len_bytes > max_bytes {
            return Err(Error::key_too_large(len_bytes, max_bytes));
        }
        Ok(())
    }
}

pub(crate) fn check_name(name: &str, shared: &Shared) -> Result<()> {
    if name.starts_with(expiry::HIDDEN) {
        return Err(Error::InvalidArgument {
            what: "the collection name begins with U+0000, as only the engine's own do".into(),
        });
    }
    let max = MAX_NAME_BYTES.min(shared.config.limits.max_key_bytes);
    if name.len() > max {
        let too_large = TooLarge {
            len_bytes: name.len(),
            max_bytes: max,
        };
        return Err(Error::InvalidArgument {
            what: format!("the collection name {too_large}").into(),
        });
    }
    Ok(())
}
