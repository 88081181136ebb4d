//! Group commit: writers that wait for durability share flushes.
//!
//! A writer appends its record under the writer lock, gives that lock up and waits here. The first to come flushes for all that were appended by
//! then; the others wait for it. Lock order: nothing is locked while this lock is held, except by [`GroupFlush::wait`]'s callback.

use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::storage::StorageFile;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How far commits went.
#[derive(Clone, Copy, Default, Debug)]
struct Mark {
    version: u64,
    /// Salt of the half and offset in it.
    salt: u64,
    offset: u32,
}

#[derive(Default)]
struct State {
    appended: Mark,
    flushed: Mark,
    /// Blocks in the data file that appended records refer to are not flushed yet.
    data_pending: bool,
    running: bool,
    failed: Option<String>,
    flushes: u64,
}

/// A flush that is under way.
#[derive(Debug)]
pub(crate) struct Turn {
    target: Mark,
    /// Of the data file too, before the log's.
    pub with_data: bool,
    /// Nobody else flushes meanwhile.
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
            // What a flush that was released covers was refused where a later one failed.
            Ok(()) if !turn.is_exclusive && self.failed.is_some() => {}
            // Later flushes may have ended before.
            Ok(()) if turn.target.version >= self.flushed.version => self.flushed = turn.target,
            Ok(()) => {}
            // The system may have dropped what was not flushed; a flush that succeeds later would lie (I10).
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

/// Why nothing is written to `file` after a failure.
pub(crate) fn refusal(cause: &str, file: &dyn StorageFile) -> Error {
    match file.check_owner() {
        Err(error @ Error::Locked { .. }) => error,
        _ => Error::Poisoned {
            cause: cause.to_owned(),
        },
    }
}

/// The flushes of one database's log.
pub(crate) struct GroupFlush {
    log: Option<Arc<dyn StorageFile>>,
    state: Mutex<State>,
    done: Condvar,
}

impl GroupFlush {
    /// `version` is durable already.
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
        // Every change below leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note that a record up to `version` was handed to the file and ends at `offset` of the half with `salt`.
    pub(crate) fn appended(&self, version: u64, salt: u64, offset: u32, refers_to_data: bool) {
        let mut state = self.lock();
        state.appended = Mark { version, salt, offset };
        state.data_pending |= refers_to_data;
    }

    /// The next record must not be durable before what is in the data file now.
    pub(crate) fn data_written(&self) {
        self.lock().data_pending = true;
    }

    /// A checkpoint made everything up to `version` durable.
    pub(crate) fn checkpointed(&self, version: u64) {
        let mut state = self.lock();
        state.appended.version = state.appended.version.max(version);
        state.flushed.version = state.flushed.version.max(version);
        state.data_pending = false;
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

    /// Newest durable version.
    pub(crate) fn durable_version(&self) -> u64 {
        self.lock().flushed.version
    }

    /// Whether records were handed to the file and not flushed yet.
    pub(crate) fn is_pending(&self) -> bool {
        let state = self.lock();
        state.appended.version > state.flushed.version && state.failed.is_none()
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.lock().flushes
    }

    /// Why nothing can be made durable any more, if so.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// Nobody gets an acknowledgement any more.
    pub(crate) fn fail(&self, cause: &str) {
        self.lock().failed.get_or_insert_with(|| cause.to_owned());
        self.done.notify_all();
    }

    /// Begins a flush that the caller does, of all that was handed to the log by now; `None` if there is nothing to do, or somebody does it.
    pub(crate) fn begin(&self) -> Option<Turn> {
        let mut state = self.lock();
        let is_idle = !state.running && state.failed.is_none();
        (is_idle && state.appended.version > state.flushed.version).then(|| state.begin())
    }

    /// The caller's flush is over.
    pub(crate) fn end(&self, turn: &Turn, result: &Result<()>) {
        self.lock().end(turn, result);
        self.done.notify_all();
    }

    /// Lets others flush although the caller's is not over; what it covered is flushed again.
    pub(crate) fn release(&self, turn: &mut Turn) {
        self.lock().release(turn);
        self.done.notify_all();
    }

    /// Returns when `version` is durable.
    ///
    /// # Errors
    /// Of the flush this call made itself; [`Error::Poisoned`] where another's failed.
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

    /// Returns when everything that was handed to the log is durable.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(crate) fn flush_appended(&self, data: &dyn StorageFile) -> Result<()> {
        let appended = self.lock().appended.version;
        self.wait(appended, data)
    }

    /// Flushes `file` while no other flush runs: of two at the same time a system may tell only one that writes were lost, and both may
    /// have needed them (I10). After a failure nothing is flushed any more.
    pub(crate) fn flush_alone(&self, file: &dyn StorageFile) -> Result<()> {
        let mut state = self.lock();
        while state.running {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(cause) = &state.failed {
            return Err(refusal(cause, file));
        }
        state.running = true;
        drop(state);
        let result = file.flush();
        state = self.lock();
        state.running = false;
        if let Err(error) = &result {
            state.failed.get_or_insert_with(|| error.to_string());
        }
        self.done.notify_all();
        result
    }

    /// Blocks before the records that refer to them.
    fn flush_files(&self, with_data: bool, data: &dyn StorageFile) -> Result<()> {
        if with_data {
            data.flush()?;
        }
        self.log.as_ref().map_or(Ok(()), |log| log.flush())
    }
}
