//! The duties of a host, done by threads: flushing relaxed commits within a bounded time, purging what has expired, and merging memtables beside commits
//! and while nobody writes.
//!
//! The engine itself starts no threads. A native program that wants the bound of [`Durability::Relaxed`](crate::Durability::Relaxed) kept for it
//! starts a [`Background`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::database::Database;

/// Expired records that one step removes.
const PURGE_RECORDS: usize = 1000;
/// Less is not worth a flush of its own.
const MIN_WRITE_BACK_BYTES: u64 = 2 << 20;

/// Two threads that look after a database until this is dropped: one does what is due, the other one merges beside commits.
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
    threads: Vec<JoinHandle<()>>,
    merger: Arc<Merger>,
}

/// The thread that merges, as the one that stops it sees it.
#[derive(Debug)]
struct Merger {
    database: Arc<Database>,
    is_stopped: AtomicBool,
}

/// How long the thread that merges sleeps at most.
const PATIENCE: Duration = Duration::from_secs(1);

impl Merger {
    fn run(&self) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            // What fails is tried again by a commit.
            if self.database.merge_beside() != Ok(true) {
                self.database.await_merge(PATIENCE);
            }
        }
    }
}

impl Background {
    /// Flushes relaxed commits, and much that merges wrote, and purges expired records of `database` every `interval`; memtables are merged beside
    /// commits, and after an interval without one. An error of a flush or a purge ends up in the next write, which is refused as [`Error::Poisoned`](crate::Error::Poisoned).
    #[must_use]
    pub fn start(database: Arc<Database>, interval: Duration) -> Self {
        let (stop, stopped) = channel::<()>();
        let merger = Arc::new(Merger {
            database: Arc::clone(&database),
            is_stopped: AtomicBool::new(false),
        });
        let merging = Arc::clone(&merger);
        database.count_merger(true);
        let merging = std::thread::spawn(move || merging.run());
        let tending = std::thread::spawn(move || {
            let mut version = None;
            let mut flushed = 0;
            loop {
                let waited = stopped.recv_timeout(interval);
                tend(&database);
                write_back(&database, &mut flushed);
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
            threads: vec![tending, merging],
            merger,
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

/// Flushes what merges write while they go on, so that their checkpoints have less to wait for. `flushed` is how much was written when it last did.
fn write_back(database: &Database, flushed: &mut u64) {
    let written = database.block_bytes_written();
    if written - *flushed >= MIN_WRITE_BACK_BYTES && database.flush_blocks().is_ok() {
        *flushed = written;
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop = None;
        self.merger.is_stopped.store(true, Ordering::Relaxed);
        // Wakes it.
        self.merger.database.count_merger(false);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
