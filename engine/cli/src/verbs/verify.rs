//! `verify`: reads everything and reports damage in the form of the JavaScript package.

use std::path::PathBuf;

use clap::Args;
use mangrove_engine::Error;
use serde_json::{Value, json};

use crate::failure::{CORRUPT, Failure, Result};
use crate::output::print;
use crate::store;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 nothing is damaged, 1 it could not be checked, 2 damage was found.")]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
}

/// All of the data exists, but the file is not as it was written.
const OLDER: &str = "the newest checkpoint is damaged; the one before it and the log give the same state, and the next checkpoint replaces it";

pub(super) fn describe(error: &Error) -> Value {
    let mut problem = json!({ "code": error.code(), "message": error.to_string() });
    if let Error::Corrupt(corruption) = error {
        if let Some(unit) = corruption.unit {
            problem["page"] = unit.into();
        }
        if let Some(collection) = &corruption.collection {
            problem["collection"] = collection.as_str().into();
        }
    }
    problem
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let verified = store::read(&arguments.path, |database| {
        let is_older = database.stats().recovered_from_older;
        Ok((database.verify()?, is_older))
    });
    // Damage that prevents opening is a finding as well.
    if let Err(Failure::Coded { code, message }) = &verified
        && verified.as_ref().is_err_and(Failure::is_damage)
    {
        let problem = json!({ "code": code, "message": message });
        print(&json!({ "ok": false, "pagesChecked": 0, "entries": 0, "problems": [problem] }).to_string())?;
    }
    let (report, is_older) = verified?;
    let mut problems: Vec<Value> = report.problems.iter().map(describe).collect();
    let mut messages: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    if is_older {
        problems.insert(0, json!({ "code": CORRUPT, "message": OLDER }));
        messages.insert(0, OLDER.to_owned());
    }
    let shown = json!({
        "ok": problems.is_empty(),
        "pagesChecked": report.blocks,
        "entries": report.entries,
        "problems": problems,
    });
    print(&shown.to_string())?;
    match messages.first() {
        None => Ok(()),
        Some(first) => Err(Failure::damage(messages.len(), first)),
    }
}
