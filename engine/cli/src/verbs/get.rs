//! `get`: prints one value.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::CollectionArguments;
use crate::collection;
use crate::failure::{Failure, Result};
use crate::output::print;
use crate::store;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// Key as JSON.
    #[arg(allow_hyphen_values = true)]
    key: String,
    #[command(flatten)]
    target: CollectionArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let CollectionArguments { collection, raw } = &arguments.target;
    let value = store::read(&arguments.path, |database| {
        let key = raw.form.key(&arguments.key)?;
        let value = match collection::tree(&database.snapshot(), collection)? {
            Some(tree) => tree.get(&key)?,
            None => None,
        };
        let value = value.ok_or_else(|| Failure::not_found(format!("there is no key {}", arguments.key)))?;
        Ok(raw.form.show(&value).to_string())
    })?;
    print(&value)
}
