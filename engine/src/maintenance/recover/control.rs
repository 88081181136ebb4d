//! Progress and cancellation.

use std::ops::ControlFlow;

use super::report::{RecoverPhase, RecoverProgress};
use crate::error::Error;

/// Bytes of the file between progress reports.
const STEP_BYTES: u64 = 1 << 20;
/// Leaves between progress reports.
const STEP_LEAVES: u64 = 64;

/// Why the work ends early.
pub(super) enum Stop {
    Cancelled,
    Failed(Error),
}

pub(super) type Flow<T> = Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) struct Control<'a> {
    callback: &'a mut dyn FnMut(RecoverProgress) -> ControlFlow<()>,
    state: RecoverProgress,
    reported_bytes: u64,
    leaves: u64,
}

impl<'a> Control<'a> {
    pub(super) fn new(callback: &'a mut dyn FnMut(RecoverProgress) -> ControlFlow<()>, total_bytes: u64) -> Self {
        Self {
            callback,
            state: RecoverProgress {
                phase: RecoverPhase::Copying,
                scanned_bytes: 0,
                total_bytes,
                records: 0,
            },
            reported_bytes: 0,
            leaves: 0,
        }
    }

    pub(super) fn enter(&mut self, phase: RecoverPhase) -> Flow<()> {
        self.state.phase = phase;
        self.report()
    }

    pub(super) fn phase(&self) -> RecoverPhase {
        self.state.phase
    }

    /// Notes that the scan has reached this byte.
    pub(super) fn at(&mut self, offset: u64) -> Flow<()> {
        self.state.scanned_bytes = offset;
        if offset.abs_diff(self.reported_bytes) < STEP_BYTES {
            return Ok(());
        }
        self.reported_bytes = offset;
        self.report()
    }

    /// Notes a leaf with this many records.
    pub(super) fn leaf(&mut self, records: u64) -> Flow<()> {
        self.state.records += records;
        self.leaves += 1;
        if self.leaves.is_multiple_of(STEP_LEAVES) {
            self.report()
        } else {
            Ok(())
        }
    }

    /// Resets the record count after reads that only probed.
    pub(super) fn forget_records(&mut self) {
        self.state.records = 0;
    }

    fn report(&mut self) -> Flow<()> {
        match (self.callback)(self.state) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Cancelled),
        }
    }
}
