//! Detects another process or handle that writes to the same files (invariant I26), and files that
//! were removed, renamed or replaced.
//!
//! The storage's lock should prevent that. Where the lock does not hold, as on some network file
//! systems, the fence does. Before anything else, each writer writes its claim, a sector beside the
//! superblock that the next checkpoint overwrites:
//!
//! ```text
//! 0  [8]  magic "MANGOPEN"
//! 8  u64  session of the opening
//! 16 [496] 0
//! ```
//! The writer then checks whether the log has grown since it was read. From then on superblocks and
//! claims must be as this writer knows them. If they are not, another writer is present: nothing
//! more is written, and nothing written is acknowledged.
//!
//! An open file outlives its name: what is written then is lost once the file is closed. So after
//! each flush, and before the database is closed, both names must still lead to the open files.

use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::locks::{Mutex, MutexGuard};
use crate::log::Tail;
use crate::pages::{CLAIM_OFFSET, SLOT_BYTES, Superblock};
use crate::storage::{NAME_AGE_MS, StorageFile, Watch};
use crate::trace;

const SECTOR_BYTES: usize = 512;
const MAGIC: [u8; 8] = *b"MANGOPEN";
/// Both slots up to their claims.
const WATCHED_BYTES: usize = SLOT_BYTES + CLAIM_OFFSET + SECTOR_BYTES;
/// Bytes of the first record that are compared.
const FIRST_BYTES: usize = 4096;

struct State {
    /// The front of the data file: its content when opened, with this handle's own writes since.
    front: Vec<u8>,
    buffer: Vec<u8>,
    /// Where the claim goes; `None` once it is written.
    claim_at: Option<u64>,
    log: Option<Arc<dyn StorageFile>>,
    /// Where the log ended when it was read; taken when the claim is written.
    tail: Option<Tail>,
    /// The first bytes written to the log, until they are read back: another writer may have been
    /// about to write there before it could see the claim.
    first: Option<(u64, Vec<u8>)>,
    has_logged: bool,
    /// Why nothing may be written any more: [`Error::Locked`] or [`Error::Evicted`].
    lost: Option<Error>,
    /// The database is open.
    is_open: bool,
}

/// The state that the files of one open database share.
pub(super) struct Fence {
    data: Arc<dyn StorageFile>,
    pub(super) session: u64,
    every_write: bool,
    state: Mutex<State>,
}

impl Fence {
    /// Reads the sectors that must stay unchanged. Called before the superblocks are read.
    pub(super) fn new(data: &Arc<dyn StorageFile>, watch: Watch, session: u64) -> Result<Arc<Self>> {
        let mut front = Vec::new();
        read_front(&**data, &mut front)?;
        Ok(Arc::new(Self {
            data: Arc::clone(data),
            session,
            every_write: watch == Watch::Writes,
            state: Mutex::new(State {
                front,
                buffer: Vec::new(),
                claim_at: None,
                log: None,
                tail: None,
                first: None,
                has_logged: false,
                lost: None,
                is_open: false,
            }),
        }))
    }

    /// Arms the fence: from here on the first write is preceded by the claim.
    pub(super) fn arm(&self, newest: &Superblock) {
        let slot = 1 - newest.generation % 2;
        self.lock().claim_at = Some(slot * SLOT_BYTES as u64 + CLAIM_OFFSET as u64);
    }

    /// Completes the fence once the database is open. Its log ends at `tail`.
    ///
    /// # Errors
    /// [`Error::Locked`] if recovery wrote the claim, and another opening has appended to the log since that was read.
    pub(super) fn begin(&self, log: Option<Arc<dyn StorageFile>>, tail: Option<Tail>) -> Result<()> {
        let mut state = self.lock();
        state.is_open = true;
        state.log = log;
        state.tail = tail;
        if state.claim_at.is_none() {
            Self::check_tail(&mut state)?;
        }
        Ok(())
    }

    /// Checks, once, that the log has not grown since it was read.
    fn check_tail(state: &mut State) -> Result<()> {
        if let (Some(log), Some(tail)) = (&state.log, state.tail.take())
            && tail.has_grown(&**log)?
        {
            return Err(Self::locked(state));
        }
        Ok(())
    }

    pub(super) fn watch(self: &Arc<Self>, file: Arc<dyn StorageFile>, is_log: bool) -> Arc<dyn StorageFile> {
        Arc::new(WatchedFile {
            fence: Arc::clone(self),
            file,
            is_log,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that another writer is present.
    fn locked(state: &mut State) -> Error {
        let error = Error::Locked {
            file: crate::pages::DATA_FILE.into(),
        };
        trace::event!(WARN, "fence found another writer", is_open = state.is_open);
        state.lost = Some(error.clone());
        error
    }

    /// Checks the names of the files, and whether anything was found wrong before.
    fn check_names(&self, state: &mut State, max_age_ms: u32) -> Result<()> {
        if let Some(error) = &state.lost {
            return Err(error.clone());
        }
        // A write that need not be durable yet needs only the database.
        let log = state.log.as_deref().filter(|_| max_age_ms == 0);
        let found = self
            .data
            .check_name(max_age_ms)
            .and_then(|()| log.map_or(Ok(()), |log| log.check_name(0)));
        found.inspect_err(|error| state.lost = Some(error.clone()))
    }

    fn check_front(&self, state: &mut State) -> Result<()> {
        let mut found = std::mem::take(&mut state.buffer);
        let read = read_front(&*self.data, &mut found);
        let is_ours = found == state.front;
        state.buffer = found;
        read?;
        if is_ours { Ok(()) } else { Err(Self::locked(state)) }
    }

    /// Called before each write: checks the files, and writes the claim before the first one.
    fn admit(&self, state: &mut State, is_log: bool) -> Result<()> {
        let is_first = state.claim_at.is_some();
        if is_first || state.lost.is_some() || self.every_write || !is_log {
            self.check_names(state, NAME_AGE_MS)?;
            self.check_front(state)?;
        }
        if let Some(at) = state.claim_at {
            let mut claim = [0; SECTOR_BYTES];
            claim[..8].copy_from_slice(&MAGIC);
            claim[8..16].copy_from_slice(&self.session.to_le_bytes());
            self.put(state, at, &claim)?;
            state.claim_at = None;
            trace::event!(DEBUG, "fence wrote its claim", session = self.session, offset = at);
            Self::check_tail(state)?;
        }
        Ok(())
    }

    /// Writes to the front of the data file.
    fn put(&self, state: &mut State, at: u64, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.data.write_at(at, bytes) {
            // Part of it may have been written.
            let mut front = std::mem::take(&mut state.front);
            let _ = read_front(&*self.data, &mut front);
            state.front = front;
            return Err(error);
        }
        let at = at as usize;
        let end = (at + bytes.len()).min(WATCHED_BYTES);
        if state.front.len() < end {
            state.front.resize(end, 0);
        }
        state.front[at..end].copy_from_slice(&bytes[..end - at]);
        Ok(())
    }

    /// Called after a flush, before anything is acknowledged, with `max_age_ms` 0, and before a strict
    /// commit. `of_log`: the log was flushed too.
    fn check_flushed(&self, of_log: bool, max_age_ms: u32) -> Result<()> {
        let mut state = self.lock();
        self.check_names(&mut state, max_age_ms)?;
        // Before the claim there is nothing to acknowledge.
        if state.is_open && state.claim_at.is_some() {
            return Ok(());
        }
        self.check_front(&mut state)?;
        if of_log && let (Some(log), Some((at, bytes))) = (&state.log, &state.first) {
            let mut found = vec![0; bytes.len()];
            log.read_at(*at, &mut found)?;
            if found != *bytes {
                return Err(Self::locked(&mut state));
            }
            state.first = None;
        }
        Ok(())
    }
}

fn read_front(data: &dyn StorageFile, into: &mut Vec<u8>) -> Result<()> {
    into.resize(data.len()?.min(WATCHED_BYTES as u64) as usize, 0);
    data.read_at(0, into)
}

/// A file that is written only while no other writer is detected.
struct WatchedFile {
    fence: Arc<Fence>,
    file: Arc<dyn StorageFile>,
    is_log: bool,
}

impl WatchedFile {
    /// Records the first bytes in the log, as far as no later write covers them.
    fn note(state: &mut State, offset: u64, from: &[u8]) {
        let is_first = !std::mem::replace(&mut state.has_logged, true);
        let Some((at, bytes)) = &mut state.first else {
            if is_first {
                state.first = Some((offset, from[..from.len().min(FIRST_BYTES)].to_vec()));
            }
            return;
        };
        if offset <= *at {
            state.first = Some((offset, from[..from.len().min(FIRST_BYTES)].to_vec()));
        } else {
            bytes.truncate((offset - *at).min(FIRST_BYTES as u64) as usize);
        }
    }
}

impl StorageFile for WatchedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let mut state = self.fence.lock();
        self.fence.admit(&mut state, self.is_log)?;
        if !self.is_log && offset < WATCHED_BYTES as u64 {
            return self.fence.put(&mut state, offset, from);
        }
        let is_noted = self.is_log && (!state.has_logged || state.first.is_some());
        drop(state);
        let written = self.file.write_at(offset, from);
        if is_noted {
            let mut state = self.fence.lock();
            match &written {
                Ok(()) => Self::note(&mut state, offset, from),
                // Part of it may be there, in place of what was noted.
                Err(_) => state.first = None,
            }
        }
        written
    }

    fn flush(&self) -> Result<()> {
        self.file.flush()?;
        self.fence.check_flushed(self.is_log, 0)
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.fence.lock();
        self.fence.admit(&mut state, false)?;
        if self.is_log {
            state.first = None;
        }
        drop(state);
        self.file.set_len(len)
    }

    fn check_owner(&self) -> Result<()> {
        self.fence.check_flushed(true, NAME_AGE_MS)
    }

    /// Of both files, if `max_age_ms` is 0.
    fn check_name(&self, max_age_ms: u32) -> Result<()> {
        self.fence.check_names(&mut self.fence.lock(), max_age_ms)
    }
}
