//! `backup`: a snapshot as one stream that `restore` reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use mangrove_engine::{BackupReport, Error, Snapshot};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::print;
use crate::progress::{Progress, note};
use crate::store::{Access, Store};

#[derive(Args)]
#[command(
    after_help = "The report is printed on standard output, or on standard error if the backup goes to the former."
)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// File to write, which must not be there yet; - is standard output.
    file: PathBuf,
    /// Shows progress on standard error even if that is not a terminal.
    #[arg(long)]
    progress: bool,
}

/// A name in a directory survives a power cut once the directory is flushed.
fn flush_name(path: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn to_file(snapshot: &Snapshot, path: &Path, progress: &mut Progress) -> Result<BackupReport> {
    let failed = |error: io::Error| Failure::io(&format!("writing {}", path.display()), &error);
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = created.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::AlreadyExists {
            what: path.display().to_string(),
        }
        .into(),
        _ => failed(error),
    })?;
    let mut write = || {
        let report = snapshot.backup(&mut file, &mut |state| {
            progress.show(state);
            ControlFlow::Continue(())
        })?;
        file.sync_all().and_then(|()| flush_name(path)).map_err(failed)?;
        Ok(report)
    };
    // Half a backup is of no use to anybody.
    write().inspect_err(|_| drop(fs::remove_file(path)))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = Store::open(&arguments.path, Access::Read)?;
    let snapshot = store.database.snapshot();
    let mut progress = Progress::new(arguments.progress);
    let is_stream = arguments.file == Path::new("-");
    let report = if is_stream {
        let report = snapshot.backup(&mut io::stdout().lock(), &mut |state| {
            progress.show(state);
            ControlFlow::Continue(())
        });
        report?
    } else {
        to_file(&snapshot, &arguments.file, &mut progress)?
    };
    progress.end();
    let shown = json!({
        "databaseId": format!("{:032x}", report.database_id),
        "version": report.version,
        "collections": report.collections,
        "entries": report.records,
        "bytes": report.bytes,
    })
    .to_string();
    if is_stream {
        note(&shown);
        return Ok(());
    }
    print(&shown)
}
