//! `restore`: creates a database from a backup, or adds the commits of an incremental backup to a
//! restored one.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use mangrove_engine::RestoreReport;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::key;
use crate::output::print;
use crate::progress::Progress;
use crate::store::{Access, Replacement, Store, Vacancy};
use crate::system::StandardInput;

#[derive(Args)]
#[command(after_help = "\
The database is there once all of it was verified. If the command is killed, what is left does not open as a database and can be removed.

With --at or --at-position, the npm tool makes the database of an earlier time from its archive in a bucket:
npx @mangrove-kv/cli restore --at --help")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Arguments {
    /// File to read; - is standard input.
    file: PathBuf,
    /// Directory of the new database; with --incremental, directory or data file of the database
    /// restored so far.
    path: PathBuf,
    /// Adds the commits of a backup made with --since. The database must be at that version. It
    /// gets all of the commits or stays as it is.
    #[arg(long)]
    incremental: bool,
    /// Replaces an existing database, in one step, once all of the new one is verified.
    #[arg(long, conflicts_with = "incremental")]
    overwrite: bool,
    /// Replaces files called data and log even if they do not begin like a database's.
    #[arg(long, requires = "overwrite")]
    force: bool,
    /// Shows progress on standard error even if that is not a terminal.
    #[arg(long)]
    progress: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut source: Box<dyn Read> = if arguments.file == Path::new("-") {
        let opened = StandardInput::open();
        Box::new(opened.map_err(|error| Failure::io("opening standard input", &error))?)
    } else {
        let opened = File::open(&arguments.file);
        Box::new(opened.map_err(|error| Failure::io(&format!("opening {}", arguments.file.display()), &error))?)
    };
    let mut progress = Progress::new(arguments.progress);
    if arguments.incremental {
        let report = Store::open(&arguments.path, Access::Write)?.write(|database| {
            let report = database.restore_commits(&mut *source, &mut |state| {
                progress.show_copied(state, "commits");
                ControlFlow::Continue(())
            });
            Ok(report?)
        })?;
        progress.end();
        let shown = json!({
            "databaseId": format!("{:032x}", report.database_id),
            "version": report.version,
            "commits": report.commits,
            "changes": report.changes,
            "bytes": report.bytes,
        });
        return print(&shown.to_string());
    }
    let make = |storage| -> Result<RestoreReport> {
        let report = mangrove_engine::restore(&mut *source, storage, key::options()?, &mut |state| {
            progress.show_copied(state, "records");
            ControlFlow::Continue(())
        });
        Ok(report?)
    };
    let report = if arguments.overwrite {
        Replacement::new(&arguments.path, arguments.force)?.fill(make)?
    } else {
        let filled = Vacancy::new(&arguments.path)?.fill(make);
        filled.map_err(|failure| failure.with_advice("KV_EXISTS", "--overwrite replaces it"))?
    };
    progress.end();
    let shown = json!({
        "databaseId": format!("{:032x}", report.database_id),
        "version": report.version,
        "collections": report.collections,
        "entries": report.records,
        "bytes": report.bytes,
        "pagesChecked": report.blocks,
    });
    print(&shown.to_string())
}
