//! Maintenance of an open database.

use std::ops::ControlFlow;

use mangrove_engine::{CompactEnd, CompactOptions, Database, Result};
#[cfg(feature = "encryption")]
use mangrove_engine::{ReencryptEnd, ReencryptOptions};

use crate::protocol::Writer;

/// Breaks after so many slices, at least one.
fn up_to(slices: u64) -> impl FnMut() -> ControlFlow<()> {
    let mut left = slices.max(1);
    move || {
        left -= 1;
        if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Runs up to `slices` slices of a compaction, which tolerates `threshold_bytes` unused bytes of
/// the file; 0 selects the default. Writes whether it has ended, the length of the file before and
/// after, the shortest length it can reach, whether the remaining blocks fit into no free extent,
/// and the bytes moved.
pub(crate) fn compact(database: &Database, slices: u64, threshold_bytes: u64, out: &mut Writer) -> Result<()> {
    let mut options = CompactOptions::default();
    if threshold_bytes > 0 {
        options.threshold_bytes = threshold_bytes;
    }
    let mut next = up_to(slices);
    let mut used_bytes = 0;
    let report = database.compact(options, &mut |progress| {
        used_bytes = progress.used_bytes;
        next()
    })?;
    out.flag(report.end != CompactEnd::Cancelled);
    out.uv(report.file_bytes_before);
    out.uv(report.file_bytes_after);
    out.uv(used_bytes);
    out.flag(report.end == CompactEnd::NoRoom);
    out.uv(report.moved_bytes);
    Ok(())
}

/// Runs up to `slices` slices of a re-encryption. Writes whether it is done, whether it waits for values
/// that are being staged, the bytes moved so far, and those in use.
#[cfg(feature = "encryption")]
pub(crate) fn reencrypt(database: &Database, slices: u64, begins: bool, out: &mut Writer) -> Result<()> {
    let options = ReencryptOptions {
        continues_only: !begins,
        ..ReencryptOptions::default()
    };
    let mut next = up_to(slices);
    let (mut moved_bytes, mut used_bytes) = (0, 0);
    let run = database.reencrypt(options, &mut |progress| {
        (moved_bytes, used_bytes) = (progress.moved_bytes, progress.used_bytes);
        next()
    });
    let end = run.map_err(crate::secret::as_without_encryption)?;
    out.flag(end == ReencryptEnd::Done);
    out.flag(end == ReencryptEnd::Staged);
    out.uv(moved_bytes);
    out.uv(used_bytes);
    Ok(())
}

/// Runs slices of a re-encryption: no database is encrypted here.
#[cfg(not(feature = "encryption"))]
pub(crate) fn reencrypt(_: &Database, _: u64, _: bool, _: &mut Writer) -> Result<()> {
    Err(crate::secret::not_encrypted())
}
