//! `backup`: writes a snapshot, or the commits since another backup, as one stream for `restore`.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use mangrove_engine::{BackupReport, Database, Error};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::print;
use crate::progress::{Progress, note};
use crate::store;
use crate::system::NewFile;

#[derive(Args)]
#[command(
    after_help = "The report is printed on standard output, or on standard error if the backup goes to the former."
)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// File to write, which must not exist; - is standard output.
    file: PathBuf,
    /// Writes only the commits after this version, which an earlier backup reported. The database
    /// has to keep a feed that reaches back to it.
    #[arg(long, value_name = "VERSION")]
    since: Option<u64>,
    /// Shows progress on standard error even if that is not a terminal.
    #[arg(long)]
    progress: bool,
}

fn save(
    database: &Database,
    since: Option<u64>,
    into: &mut dyn Write,
    progress: &mut Progress,
) -> Result<BackupReport> {
    let mut show = |state| {
        progress.show_copied(state, if since.is_some() { "commits" } else { "records" });
        ControlFlow::Continue(())
    };
    Ok(match since {
        Some(version) => database.backup_since(version, into, &mut show)?,
        None => database.snapshot().backup(into, &mut show)?,
    })
}

fn to_file(database: &Database, since: Option<u64>, path: &Path, progress: &mut Progress) -> Result<BackupReport> {
    let failed = |error: io::Error| Failure::io(&format!("writing {}", path.display()), &error);
    let mut file = NewFile::create(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::AlreadyExists {
            what: path.display().to_string().into(),
        }
        .into(),
        _ => failed(error),
    })?;
    let mut write = || {
        let report = save(database, since, &mut file, progress)?;
        file.flush_all().map_err(failed)?;
        Ok(report)
    };
    // Half a backup is of no use.
    write().inspect_err(|_| drop(fs::remove_file(path)))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let since = arguments.since;
    let mut progress = Progress::new(arguments.progress);
    let is_stream = arguments.file == Path::new("-");
    let report = store::read(&arguments.path, |database| {
        if !is_stream {
            return to_file(database, since, &arguments.file, &mut progress);
        }
        save(database, since, &mut io::stdout().lock(), &mut progress).map_err(|failure| match failure {
            Failure::Stale => Failure::stale_output(),
            failure => failure,
        })
    })?;
    progress.end();
    let id = format!("{:032x}", report.database_id);
    let shown = if since.is_some() {
        json!({
            "databaseId": id,
            "base": report.base,
            "version": report.version,
            "commits": report.commits,
            "changes": report.changes,
            "bytes": report.bytes,
        })
    } else {
        json!({
            "databaseId": id,
            "version": report.version,
            "collections": report.collections,
            "entries": report.records,
            "bytes": report.bytes,
        })
    };
    let shown = shown.to_string();
    if is_stream {
        note(&shown);
        return Ok(());
    }
    print(&shown)
}
