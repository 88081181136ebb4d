//! Group commit: writers that wait for durability share flushes.
//!
//! A writer appends its record under the writer lock, releases that lock and waits here. The first
//! waiter flushes everything appended so far; the others wait for it. Lock order: under this lock,
//! only [`StorageFile::check_owner`] may take another lock.

use std::sync::{Arc, PoisonError};

use super::HALF_HEADER_BYTES;
use crate::error::{Error, Result};
use crate::locks::{Condvar, Mutex, MutexGuard};
use crate::storage::StorageFile;

/// A point in the sequence of commits.
#[derive(Clone, Copy, Default, Debug)]
struct Mark {
    version: u64,
    /// Salt of the half; `offset` counts from its start.
    salt: u64,
    offset: u32,
}

#[derive(Default)]
struct State {
    appended: Mark,
    flushed: Mark,
    /// Appended records refer to blocks of the data file that are not flushed yet.
    data_pending: bool,
    running: bool,
    failed: Option<String>,
    flushes: u64,
}

/// A flush in progress.
#[derive(Debug)]
pub(crate) struct Turn {
    target: Mark,
    /// Whether the data file must be flushed too, before the log.
    pub with_data: bool,
    /// No other flush may run until this one ends.
    is_exclusive: bool,
}

impl State {
    fn begin(&mut self) -> Turn {
        self.running = true;
        Turn {
            target: self.appended,
            with_data: std::mem::take(&mut self.data_pending),
            is_exclusive: true,
        }
    }

    fn end(&mut self, turn: &Turn, result: &Result<()>) {
        if turn.is_exclusive {
            self.running = false;
        }
        self.flushes += 1;
        match result {
            // A later flush failed, so the commits this released flush covers were already refused.
            Ok(()) if !turn.is_exclusive && self.failed.is_some() => {}
            // Later flushes may have ended first.
            Ok(()) if turn.target.version >= self.flushed.version => self.flushed = turn.target,
            Ok(()) => {}
            // The system may have dropped the unflushed writes; a later successful flush would lie
            // (I10).
            Err(error) => {
                self.failed.get_or_insert_with(|| error.to_string());
            }
        }
    }

    fn release(&mut self, turn: &mut Turn) {
        if std::mem::take(&mut turn.is_exclusive) {
            self.running = false;
            self.data_pending |= turn.with_data;
        }
    }
}

/// The error for writes to `file` that are refused after a failure.
pub(crate) fn refusal(cause: &str, file: &dyn StorageFile) -> Error {
    match file.check_owner() {
        Err(error @ (Error::Locked { .. } | Error::Evicted { .. })) => error,
        _ => Error::Poisoned { cause: cause.into() },
    }
}

/// The error of a write or flush after which nothing more is written: whether what it was about counts
/// shows only when the database is opened again. [`Error::StorageFull`] would say that it does not.
pub(crate) fn in_doubt(error: Error) -> Error {
    match error {
        Error::StorageFull { context } => Error::io(
            context,
            "no space left; whether the commit counts is unknown until the database is opened again",
        ),
        error => error,
    }
}

/// Coordinates the flushes of one database's log.
pub(crate) struct GroupFlush {
    log: Option<Arc<dyn StorageFile>>,
    state: Mutex<State>,
    done: Condvar,
}

impl GroupFlush {
    /// Creates the state of a log whose commits up to `version` are already durable.
    pub(crate) fn new(log: Option<Arc<dyn StorageFile>>, version: u64) -> Self {
        let mark = Mark {
            version,
            ..Mark::default()
        };
        Self {
            log,
            state: Mutex::new(State {
                appended: mark,
                flushed: mark,
                ..State::default()
            }),
            done: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an append: commits up to `version` end at `offset` in the half with `salt`.
    pub(crate) fn appended(&self, version: u64, salt: u64, offset: u32, refers_to_data: bool) {
        let mut state = self.lock();
        state.appended = Mark { version, salt, offset };
        state.data_pending |= refers_to_data;
    }

    /// Records a write to the data file that must be durable before the next log record.
    pub(crate) fn data_written(&self) {
        self.lock().data_pending = true;
    }

    /// Records a checkpoint that made all commits up to `version` durable.
    pub(crate) fn checkpointed(&self, version: u64) {
        let mut state = self.lock();
        state.appended.version = state.appended.version.max(version);
        state.flushed.version = state.flushed.version.max(version);
        drop(state);
        self.done.notify_all();
    }

    /// Offset up to which the half with `salt` is known to be flushed.
    pub(crate) fn flushed_to(&self, salt: u64) -> u32 {
        let state = self.lock();
        if state.flushed.salt == salt {
            state.flushed.offset
        } else {
            0
        }
    }

    /// The newest durable version.
    pub(crate) fn durable_version(&self) -> u64 {
        self.lock().flushed.version
    }

    /// Whether the log holds appended records that are not flushed yet.
    pub(crate) fn is_pending(&self) -> bool {
        let state = self.lock();
        state.appended.version > state.flushed.version && state.failed.is_none()
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.lock().flushes
    }

    /// The cause, if nothing can become durable any more.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// Stops all further acknowledgements, because of `cause`.
    pub(crate) fn fail(&self, cause: &str) {
        self.lock().failed.get_or_insert_with(|| cause.to_owned());
        self.done.notify_all();
    }

    /// As [`fail`](Self::fail), unless a write only ran out of space, and so has no effect.
    pub(crate) fn fail_unless_full(&self, error: &Error) {
        if !matches!(error, Error::StorageFull { .. }) {
            self.fail(&error.to_string());
        }
    }

    /// Begins a flush of everything appended so far, to be done by the caller. `None` if there is
    /// nothing to flush, a flush is running or one has failed.
    pub(crate) fn begin(&self) -> Option<Turn> {
        let mut state = self.lock();
        let is_idle = !state.running && state.failed.is_none();
        (is_idle && state.appended.version > state.flushed.version).then(|| state.begin())
    }

    /// Ends the caller's flush.
    pub(crate) fn end(&self, turn: &Turn, result: &Result<()>) {
        self.lock().end(turn, result);
        self.done.notify_all();
    }

    /// Allows other flushes before the caller's has ended; they cover its records again.
    pub(crate) fn release(&self, turn: &mut Turn) {
        self.lock().release(turn);
        self.done.notify_all();
    }

    /// Waits until `version` is durable, flushing if no other thread does.
    ///
    /// # Errors
    /// The error of this call's own flush; [`Error::Poisoned`] if another flush failed.
    pub(crate) fn wait(&self, version: u64, data: &dyn StorageFile) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.flushed.version >= version {
                return Ok(());
            }
            if let Some(cause) = &state.failed {
                return Err(refusal(cause, data));
            }
            if state.running {
                state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let turn = state.begin();
            drop(state);
            let result = self.flush_files(turn.with_data, data);
            state = self.lock();
            state.end(&turn, &result);
            self.done.notify_all();
            result?;
        }
    }

    /// Waits until everything appended so far is durable.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(crate) fn flush_appended(&self, data: &dyn StorageFile) -> Result<()> {
        let appended = self.lock().appended.version;
        self.wait(appended, data)
    }

    /// Flushes the data file while no other flush runs. After a failure it refuses to flush. Of two
    /// concurrent flushes, a system may report lost writes to only one, although both may depend on
    /// them (I10).
    pub(crate) fn flush_alone(&self, file: &dyn StorageFile) -> Result<()> {
        let mut state = self.lock_alone(file)?;
        // Blocks written from here on are marked as pending again.
        state.data_pending = false;
        drop(state);
        self.end_alone(file.flush().map_err(in_doubt))
    }

    /// As [`flush_alone`](Self::flush_alone), for the log whose half with this salt has nothing but its header.
    pub(crate) fn flush_log_alone(&self, salt: u64) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        drop(self.lock_alone(&**log)?);
        let result = log.flush().map_err(in_doubt);
        if result.is_ok() {
            let state = &mut *self.lock();
            for mark in [&mut state.appended, &mut state.flushed] {
                (mark.salt, mark.offset) = (salt, HALF_HEADER_BYTES);
            }
        }
        self.end_alone(result)
    }

    /// Begins a flush once no other runs.
    fn lock_alone(&self, file: &dyn StorageFile) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while state.running {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(cause) = &state.failed {
            return Err(refusal(cause, file));
        }
        state.running = true;
        Ok(state)
    }

    fn end_alone(&self, result: Result<()>) -> Result<()> {
        let mut state = self.lock();
        state.running = false;
        if let Err(error) = &result {
            state.failed.get_or_insert_with(|| error.to_string());
        }
        self.done.notify_all();
        result
    }

    /// Flushes blocks before the records that refer to them.
    fn flush_files(&self, with_data: bool, data: &dyn StorageFile) -> Result<()> {
        if with_data {
            data.flush().map_err(in_doubt)?;
        }
        self.log.as_ref().map_or(Ok(()), |log| log.flush().map_err(in_doubt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Counts its flushes, which fail if they should.
    #[derive(Default)]
    struct File {
        flushes: AtomicU64,
        fails: AtomicBool,
    }

    impl StorageFile for File {
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn flush(&self) -> Result<()> {
            self.flushes.fetch_add(1, Ordering::Relaxed);
            if self.fails.load(Ordering::Relaxed) {
                return Err(Error::io("flushing", "it fails"));
            }
            Ok(())
        }

        fn len(&self) -> Result<u64> {
            Ok(0)
        }

        fn set_len(&self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    fn group() -> (Arc<File>, GroupFlush) {
        let log = Arc::new(File::default());
        let file: Arc<dyn StorageFile> = Arc::<File>::clone(&log);
        (log, GroupFlush::new(Some(file), 1))
    }

    /// Whatever has failed, neither file is flushed again, and nothing that waits is acknowledged (I10).
    #[test]
    fn nothing_is_flushed_after_a_failure() {
        let failures: [fn(&GroupFlush, &File); 4] = [
            |flush, _| flush.fail("a write failed"),
            |flush, data| assert!(flush.flush_alone(data).is_err()),
            |flush, data| assert!(flush.wait(2, data).is_err()),
            |flush, _| {
                let turn = flush.begin().expect("a commit waits");
                flush.end(&turn, &Err(Error::io("flushing", "the host could not")));
            },
        ];
        for (number, fail) in failures.into_iter().enumerate() {
            let (log, flush) = group();
            let data = File::default();
            flush.appended(2, 7, 2000, true);
            data.fails.store(true, Ordering::Relaxed);
            fail(&flush, &data);
            data.fails.store(false, Ordering::Relaxed);
            let count = || {
                (
                    data.flushes.load(Ordering::Relaxed),
                    log.flushes.load(Ordering::Relaxed),
                )
            };
            let before = count();
            for refused in [
                flush.wait(2, &data),
                flush.flush_appended(&data),
                flush.flush_alone(&data),
                flush.flush_log_alone(7),
            ] {
                assert!(
                    matches!(refused, Err(Error::Poisoned { .. })),
                    "failure {number}: {refused:?}"
                );
            }
            assert!(flush.begin().is_none() && flush.failure().is_some(), "failure {number}");
            assert_eq!((count(), flush.durable_version()), (before, 1), "failure {number}");
        }
    }

    /// While a group of commits is flushed, a checkpoint flushes neither file (I10). If the flush fails, it
    /// never does.
    #[test]
    fn no_flush_begins_beside_another() {
        type Alone = fn(&GroupFlush, &File) -> Result<()>;
        let calls: [Alone; 2] = [
            |flush, data| flush.flush_alone(data),
            |flush, _| flush.flush_log_alone(7),
        ];
        for alone in calls {
            let (log, flush) = group();
            let data = File::default();
            flush.appended(2, 7, 2000, false);
            let turn = flush.begin().expect("a commit waits");
            std::thread::scope(|scope| {
                let (ended, end) = std::sync::mpsc::channel();
                let (flush, data) = (&flush, &data);
                scope.spawn(move || {
                    ended.send(Ok(())).expect("the test waits");
                    ended.send(alone(flush, data))
                });
                end.recv().expect("the thread runs").expect("it begins");
                // If it does not wait, it ends within this time.
                let early = end.recv_timeout(std::time::Duration::from_millis(30));
                flush.end(&turn, &Err(Error::io("flushing", "the host could not")));
                assert!(early.is_err(), "it did not wait: {early:?}");
                let late = end.recv().expect("it ends");
                assert!(matches!(late, Err(Error::Poisoned { .. })), "{late:?}");
            });
            let flushes = |file: &File| file.flushes.load(Ordering::Relaxed);
            assert_eq!((flushes(&data), flushes(&log)), (0, 0));
        }
    }

    /// A flush that was released may end behind later ones, which have reached further.
    #[test]
    fn a_flush_that_ends_late_takes_nothing_back() {
        let (_, flush) = group();
        flush.appended(2, 7, 2000, false);
        let mut late = flush.begin().expect("a commit waits");
        flush.release(&mut late);
        flush.appended(3, 7, 2100, false);
        flush.flush_appended(&File::default()).expect("it works");
        flush.end(&late, &Ok(()));
        assert_eq!((flush.durable_version(), flush.flushed_to(7)), (3, 2100));
        assert!(!flush.is_pending());
    }

    /// A checkpoint has all commits up to its version, in the log or not.
    #[test]
    fn what_a_checkpoint_holds_waits_for_no_flush() {
        let (log, flush) = group();
        flush.checkpointed(5);
        assert_eq!(flush.durable_version(), 5);
        assert!(flush.begin().is_none());
        flush.wait(5, &File::default()).expect("nothing is left to do");
        assert_eq!(log.flushes.load(Ordering::Relaxed), 0);
    }
}
