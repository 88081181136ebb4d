//! The duties of a host, done by a thread: flushing relaxed commits within a bounded time, purging what has expired, and merging memtables while
//! nobody writes.
//!
//! The engine itself starts no threads. A native program that wants the bound of [`Durability::Relaxed`](crate::Durability::Relaxed) kept for it
//! starts a [`Background`].

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::database::Database;

/// Expired records that one step removes.
const PURGE_RECORDS: usize = 1000;

/// A thread that looks after a database until this is dropped.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use mangrove_engine::{Background, Database, Durability, Options, storage::MemoryStorage};
///
/// let database = Arc::new(Database::open(Arc::new(MemoryStorage::new()), Options::default())?);
/// let background = Background::start(Arc::clone(&database), Duration::from_millis(100));
/// database.set("c", b"key", b"survives a power cut after at most 100 ms", Durability::Relaxed)?;
/// drop(background);
/// assert!(!database.needs_flush());
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Background {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Flushes relaxed commits and purges expired records of `database` every `interval`; after one without a commit it merges memtables. An error of the
    /// first two ends up in the next write, which is refused as [`Error::Poisoned`](crate::Error::Poisoned).
    #[must_use]
    pub fn start(database: Arc<Database>, interval: Duration) -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut version = None;
            loop {
                let waited = stopped.recv_timeout(interval);
                tend(&database);
                if waited != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let newest = database.version();
                if version.replace(newest) == Some(newest) {
                    // Whoever commits or stops this comes in between two slices.
                    let is_idle = || database.version() == newest && stopped.try_recv() == Err(TryRecvError::Empty);
                    while is_idle() && database.merge_slice() == Ok(true) {
                        std::thread::yield_now();
                    }
                }
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

fn tend(database: &Database) {
    // What fails here is reported to the next writer.
    while let Ok(PURGE_RECORDS) = database.purge_expired(PURGE_RECORDS) {}
    if database.needs_flush() {
        let _ = database.flush();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
