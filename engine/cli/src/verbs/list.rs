//! `list`: prints the collections and their indexes.

use std::path::PathBuf;

use clap::Args;

use super::stat::collections;
use crate::failure::Result;
use crate::output::Output;
use crate::store;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let collections = store::read(&arguments.path, |database| collections(&database.snapshot()))?;
    let mut output = Output::new();
    let listed = collections.iter().try_for_each(|info| output.line(&info.to_string()));
    output.end(listed)
}
