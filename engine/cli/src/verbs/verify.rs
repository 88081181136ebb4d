//! `verify`: reads everything and reports damage in the form of the JavaScript package.

use std::path::PathBuf;

use clap::Args;
use mangrove_engine::Error;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::output::print;
use crate::store::{Access, Store};

#[derive(Args)]
#[command(after_help = "Exit codes: 0 nothing is damaged, 1 it could not be checked, 2 damage was found.")]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
}

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
    let opened = Store::open(&arguments.path, Access::Read);
    // Damage that keeps it from being opened is a finding as well.
    if let Err(Failure::Coded { code, message }) = &opened
        && opened.as_ref().is_err_and(Failure::is_damage)
    {
        let problem = json!({ "code": code, "message": message });
        print(&json!({ "ok": false, "pagesChecked": 0, "entries": 0, "problems": [problem] }).to_string())?;
    }
    let store = opened?;
    let report = store.database.verify()?;
    let problems: Vec<Value> = report.problems.iter().map(describe).collect();
    let shown = json!({
        "ok": report.is_ok(),
        "pagesChecked": report.blocks,
        "entries": report.entries,
        "problems": problems,
    });
    print(&shown.to_string())?;
    match report.problems.first() {
        None => Ok(()),
        Some(first) => Err(Failure::damage(problems.len(), first)),
    }
}
