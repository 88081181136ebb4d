//! Upkeep of an open database.

use std::ops::ControlFlow;

use mangrove_engine::{CompactEnd, CompactOptions, Database, Result};

use crate::protocol::Writer;

/// Moves blocks for a number of slices; so many bytes of free space are left, 0 for as many as usual. Writes whether that is all, the file's
/// length before and after, the length that it can come down to, whether what is left fits into no free space, and what was moved.
pub(crate) fn compact(database: &Database, slices: u64, threshold_bytes: u64, out: &mut Writer) -> Result<()> {
    let mut options = CompactOptions::default();
    if threshold_bytes > 0 {
        options.threshold_bytes = threshold_bytes;
    }
    let mut left = slices.max(1);
    let mut used_bytes = 0;
    let report = database.compact(options, &mut |progress| {
        used_bytes = progress.used_bytes;
        left -= 1;
        if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    out.flag(report.end != CompactEnd::Cancelled);
    out.uv(report.file_bytes_before);
    out.uv(report.file_bytes_after);
    out.uv(used_bytes);
    out.flag(report.end == CompactEnd::NoRoom);
    out.uv(report.moved_bytes);
    Ok(())
}
