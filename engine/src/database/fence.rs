//! Detects another process or handle that writes to the same files (invariant I26).
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

use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::log::Tail;
use crate::pages::{CLAIM_OFFSET, SLOT_BYTES, Superblock};
use crate::storage::{StorageFile, Watch};
use crate::sync::{Mutex, MutexGuard};

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
    is_lost: bool,
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
    /// Reads what must stay unchanged. Called before the superblocks are read.
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
                is_lost: false,
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
            return Err(Self::lost(state));
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

    fn lost(state: &mut State) -> Error {
        state.is_lost = true;
        Error::Locked {
            file: crate::pages::DATA_FILE.into(),
        }
    }

    fn check(&self, state: &mut State) -> Result<()> {
        if !state.is_lost {
            let mut found = std::mem::take(&mut state.buffer);
            let read = read_front(&*self.data, &mut found);
            let is_ours = found == state.front;
            state.buffer = found;
            read?;
            if is_ours {
                return Ok(());
            }
        }
        Err(Self::lost(state))
    }

    /// Called before each write: checks the files, and writes the claim before the first one.
    fn admit(&self, state: &mut State, is_log: bool) -> Result<()> {
        let is_first = state.claim_at.is_some();
        if is_first || state.is_lost || self.every_write || !is_log {
            self.check(state)?;
        }
        if let Some(at) = state.claim_at {
            let mut claim = [0; SECTOR_BYTES];
            claim[..8].copy_from_slice(&MAGIC);
            claim[8..16].copy_from_slice(&self.session.to_le_bytes());
            self.put(state, at, &claim)?;
            state.claim_at = None;
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

    /// Called after a flush, before anything is acknowledged. `of_log`: the log was flushed too.
    fn check_flushed(&self, of_log: bool) -> Result<()> {
        let mut state = self.lock();
        // Before the claim there is nothing to acknowledge.
        if state.is_open && state.claim_at.is_some() && !state.is_lost {
            return Ok(());
        }
        self.check(&mut state)?;
        if of_log && let (Some(log), Some((at, bytes))) = (&state.log, &state.first) {
            let mut found = vec![0; bytes.len()];
            log.read_at(*at, &mut found)?;
            if found != *bytes {
                return Err(Self::lost(&mut state));
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
        if self.is_log && (!state.has_logged || state.first.is_some()) {
            Self::note(&mut state, offset, from);
        }
        drop(state);
        self.file.write_at(offset, from)
    }

    fn flush(&self) -> Result<()> {
        self.file.flush()?;
        self.fence.check_flushed(self.is_log)
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
        self.fence.check_flushed(true)
    }
}
