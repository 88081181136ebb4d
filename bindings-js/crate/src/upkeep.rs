//! Upkeep of an open database.

use std::ops::ControlFlow;

use mangrove_engine::{CompactEnd, CompactOptions, Database, Result};

use crate::protocol::Writer;

/// Moves blocks for a number of slices. Writes whether that is all, the file's length before and after, and the length that it can come
/// down to.
pub(crate) fn compact(database: &Database, slices: u64, out: &mut Writer) -> Result<()> {
    let mut left = slices.max(1);
    let mut used_bytes = 0;
    let report = database.compact(CompactOptions::default(), &mut |progress| {
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
    Ok(())
}
