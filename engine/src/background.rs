//! Background threads for the duties of a host: flushing relaxed commits within a bounded time,
//! purging expired records, and merging memtables concurrently with commits and while no one
//! writes.
//!
//! The engine itself starts no threads. A native program that relies on the bound of
//! [`Durability::Relaxed`](crate::Durability::Relaxed) starts a [`Background`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::database::Database;

/// Maximum number of expired records removed in one step.
const PURGE_RECORDS: usize = 1000;
/// Smaller amounts are not worth a separate flush.
const MIN_WRITE_BACK_BYTES: u64 = 2 << 20;

/// Two threads that maintain a database until this is dropped.
///
/// One flushes, purges and merges while the database is idle; the other merges concurrently with
/// commits.
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

/// State shared with the merging thread.
#[derive(Debug)]
struct Merger {
    database: Arc<Database>,
    is_stopped: AtomicBool,
}

/// Maximum sleep of the merging thread.
const PATIENCE: Duration = Duration::from_secs(1);

impl Merger {
    fn run(&self) {
        while !self.is_stopped.load(Ordering::Relaxed) {
            // A commit retries a failed merge.
            if self.database.merge_beside() != Ok(true) {
                self.database.await_merge(PATIENCE);
            }
        }
    }
}

impl Background {
    /// Starts both threads.
    ///
    /// Every `interval`, they flush relaxed commits and large amounts of merge output, and purge
    /// expired records of `database`. They merge memtables concurrently with commits, and after an
    /// interval without commits. If a flush or a purge fails, the next write is refused with
    /// [`Error::Poisoned`](crate::Error::Poisoned).
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
                    // A commit or a stop request can intervene between two slices.
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
    // Failures are reported to the next writer.
    while let Ok(PURGE_RECORDS) = database.purge_expired(PURGE_RECORDS) {}
    if database.needs_flush() {
        let _ = database.flush();
    }
}

/// Flushes merge output while merges run, so that their checkpoints have less to flush. `flushed`
/// is the number of bytes written up to the last flush.
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
        // This also wakes it.
        self.merger.database.count_merger(false);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
