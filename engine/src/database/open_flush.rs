//! A log flush performed by the host, for hosts where a thread must not wait for the disk.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::{Turn, in_doubt};
use crate::state::Shared;

/// A log flush in progress, begun by [`Database::begin_flush`](super::Database::begin_flush).
///
/// The host flushes the file `data` if [`needs_data`](Self::needs_data), then the file `log`, and
/// reports the result with [`finish`](Self::finish). A dropped flush counts as failed, because its
/// outcome is unknown.
///
/// Flush through a separate file handle if possible: operating systems report lost writes once per
/// handle.
#[must_use = "nothing else can flush before it is finished"]
pub struct OpenFlush {
    shared: Arc<Shared>,
    turn: Option<Turn>,
}

impl OpenFlush {
    pub(super) fn begin(shared: &Arc<Shared>) -> Option<Self> {
        let turn = shared.flush.begin()?;
        Some(Self {
            shared: Arc::clone(shared),
            turn: Some(turn),
        })
    }

    /// Whether log records refer to blocks of the data file that may not be on disk yet.
    #[must_use]
    pub fn needs_data(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.with_data)
    }

    /// Lets other threads flush before this flush ends, for a host that has to wait for the disk
    /// after all. This flush must still be finished: if it failed, writes may be lost even if a
    /// later flush succeeded.
    pub fn release(&mut self) {
        if let Some(turn) = &mut self.turn {
            self.shared.flush.release(turn);
        }
    }

    /// Ends the flush. Success makes the commits durable and visible; after a failure nothing more
    /// is written.
    ///
    /// # Errors
    /// The given one, [`Error::Locked`] if another writer has claimed the files, or
    /// [`Error::Evicted`] if they were taken away.
    pub fn finish(mut self, result: Result<()>) -> Result<()> {
        let file = self.shared.pager.blocks.file();
        let result = result
            .and_then(|()| file.check_owner())
            .and_then(|()| file.check_name(0))
            .map_err(in_doubt);
        if let Some(turn) = self.turn.take() {
            self.shared.flush.end(&turn, &result);
            self.shared.publish_durable();
        }
        result
    }
}

impl Drop for OpenFlush {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            let failure = Error::io("flush log", "the host gave its flush up");
            self.shared.flush.end(&turn, &Err(failure));
        }
    }
}

impl std::fmt::Debug for OpenFlush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFlush")
            .field("turn", &self.turn)
            .finish_non_exhaustive()
    }
}
