//! Upkeep of an open database.

use std::ops::ControlFlow;

use mangrove_engine::{CompactEnd, CompactOptions, Database, Result};

use crate::protocol::Writer;

/// Runs up to `slices` slices of a compaction, which tolerates `threshold_bytes` unused bytes of
/// the file; 0 selects the default. Writes whether it has ended, the length of the file before and
/// after, the shortest length it can reach, whether the remaining blocks fit into no free extent,
/// and the bytes moved.
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
