//! `reencrypt`: encrypts everything in an encrypted database anew.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use mangrove_engine::{ReencryptEnd, ReencryptOptions};

use crate::failure::Result;
use crate::progress::Progress;
use crate::store::{Access, Store};

#[derive(Args)]
#[command(after_help = "\
The key that the database opens with stays as it is; `change-key` changes it. Older copies and backups hold the
old data key, with which nothing of the new files can be read. It needs room for a few mebibytes, and may be killed
at any time: nothing is lost, and the next call continues.")]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// Shows progress on standard error even if that is not a terminal.
    #[arg(long)]
    progress: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut progress = Progress::new(arguments.progress);
    let end = Store::open(&arguments.path, Access::Write)?.write(|database| {
        let end = database.reencrypt(ReencryptOptions::default(), &mut |state| {
            progress.show(false, || {
                format!(
                    "{} of about {} bytes encrypted anew",
                    state.moved_bytes, state.used_bytes
                )
            });
            ControlFlow::Continue(())
        });
        Ok(end?)
    })?;
    debug_assert_eq!(end, ReencryptEnd::Done, "nothing else has the database open");
    progress.end();
    Ok(())
}
