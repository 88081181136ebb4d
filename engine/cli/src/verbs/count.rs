//! `count`: prints the number of records in a range.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::CollectionArguments;
use crate::collection;
use crate::failure::Result;
use crate::output::print;
use crate::range::RangeArguments;
use crate::store;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    #[command(flatten)]
    target: CollectionArguments,
    #[command(flatten)]
    range: RangeArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let CollectionArguments { collection, raw } = &arguments.target;
    let count = store::read(&arguments.path, |database| {
        let range = arguments.range.encode(raw.form)?;
        Ok(match collection::tree(&database.snapshot(), collection)? {
            Some(tree) => tree.count(range.as_keys())?,
            None => 0,
        })
    })?;
    print(&count.to_string())
}
