//! `compact`: returns free space inside a data file to the file system.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use mangrove_engine::{CompactEnd, CompactOptions};
use serde_json::json;

use crate::failure::Result;
use crate::output::print;
use crate::progress::Progress;
use crate::store::{Access, Store};

#[derive(Args)]
#[command(after_help = "\
It needs no extra space. At most 1 MiB of free space remains, unless the report's \"end\" is \"noRoom\": then the blocks at the end of the
file fit into no free space below. It may be killed at any time: nothing is lost, and space already given back
stays given back.")]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// Shows progress on standard error even if that is not a terminal.
    #[arg(long)]
    progress: bool,
}

/// Returns options for a compaction that the user asks for. It leaves less free space than one that
/// a program runs in passing; without any, the next checkpoint would have to grow the file.
fn options(file_bytes: u64) -> CompactOptions {
    CompactOptions {
        threshold_bytes: (file_bytes / 64).clamp(64 << 10, 1 << 20),
        ..CompactOptions::default()
    }
}

fn end(end: CompactEnd) -> &'static str {
    match end {
        CompactEnd::Done => "done",
        CompactEnd::Cancelled => "cancelled",
        CompactEnd::NoRoom => "noRoom",
        CompactEnd::Snapshots => "snapshots",
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut progress = Progress::new(arguments.progress);
    let report = Store::open(&arguments.path, Access::Write)?.write(|database| {
        let options = options(database.stats().file_bytes);
        let report = database.compact(options, &mut |state| {
            progress.show(false, || {
                format!(
                    "{} bytes moved, the file has {} bytes, {} of them in use",
                    state.moved_bytes, state.file_bytes, state.used_bytes
                )
            });
            ControlFlow::Continue(())
        });
        Ok(report?)
    })?;
    progress.end();
    let shown = json!({
        "end": end(report.end),
        "fileSizeBefore": report.file_bytes_before,
        "fileSizeAfter": report.file_bytes_after,
        "movedSize": report.moved_bytes,
    });
    print(&shown.to_string())
}
