//! A flush of the log that the host does, for hosts where a thread must not wait for the disk.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::Turn;
use crate::state::Shared;

/// A flush of the log that is under way, begun by [`Database::begin_flush`](super::Database::begin_flush): the host flushes the file
/// `data` if [`needs_data`](Self::needs_data), then the file `log`, and says how it went by [`finish`](Self::finish). Dropped, it counts as
/// failed: nobody knows what became of it.
///
/// A handle of its own for this is best: systems tell each handle of a file once that writes to it were lost.
#[must_use = "nobody else can flush before it is finished"]
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

    /// Whether the log has records that refer to blocks of the data file that may not be on the disk yet.
    #[must_use]
    pub fn needs_data(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.with_data)
    }

    /// Lets others flush before this is over, for a host that has to wait for the disk after all. It still has to be finished: if it failed,
    /// writes may be lost whatever a flush after it said.
    pub fn release(&mut self) {
        if let Some(turn) = &mut self.turn {
            self.shared.flush.release(turn);
        }
    }

    /// The files are flushed, which makes the commits durable and visible, or could not be: then nothing is written any more.
    ///
    /// # Errors
    /// The given one.
    pub fn finish(mut self, result: Result<()>) -> Result<()> {
        let result = result.and_then(|()| self.shared.pager.blocks.file().check_owner());
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
            let failure = Error::Io {
                context: "flush log".to_owned(),
                source: "the host gave its flush up".to_owned(),
            };
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
