//! Verifications that the client runs in slices.

use mangrove_engine::{Database, Error, Result};

use super::State;
use crate::protocol::Writer;
use crate::report;
use crate::table::MAX_OPEN_LARGE;

impl State {
    /// Checks about `bytes` more bytes; the first request with an id begins the verification.
    /// Writes whether it has ended, how many records were checked and of how many, and at the end
    /// the report.
    pub(super) fn verify(&mut self, id: u64, bytes: u64, database: &Database, out: &mut Writer) -> Result<()> {
        if self.verifications.get_mut(id).is_none() {
            self.verifications
                .check_room(MAX_OPEN_LARGE, "verifications at once; wait for one to end")?;
            self.verifications.insert(id, database.snapshot().verification());
        }
        let verification = self.verifications.get_mut(id).ok_or(Error::Closed)?;
        let advanced = verification.advance(bytes);
        let progress = verification.progress();
        if !matches!(advanced, Ok(None)) {
            self.verifications.remove(id);
        }
        let report = advanced?;
        let (done, total) = match &report {
            Some(report) => (report.entries, report.entries),
            None => (progress.entries, progress.total_entries),
        };
        out.flag(report.is_some());
        out.uv(done);
        out.uv(total);
        if let Some(report) = report {
            out.bytes(report::verify(&report).as_bytes());
        }
        Ok(())
    }

    pub(super) fn verify_close(&mut self, id: u64) {
        self.verifications.remove(id);
    }
}
