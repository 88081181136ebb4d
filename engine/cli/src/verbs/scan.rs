//! `scan`: prints the records of a range.

use std::path::PathBuf;

use clap::Args;
use mangrove_engine::{Database, Direction};

use crate::arguments::CollectionArguments;
use crate::collection;
use crate::failure::Result;
use crate::output::Output;
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
    /// From the last key to the first.
    #[arg(long)]
    reverse: bool,
    /// Maximum number of records to print.
    #[arg(long, value_name = "COUNT", default_value_t = u64::MAX, hide_default_value = true)]
    limit: u64,
    /// Leaves out the values.
    #[arg(long)]
    keys_only: bool,
}

fn scan(database: &Database, arguments: &Arguments, output: &mut Output) -> Result<()> {
    let CollectionArguments { collection, raw } = &arguments.target;
    let range = arguments.range.encode(raw.form)?;
    let Some(tree) = collection::tree(&database.snapshot(), collection)? else {
        return Ok(());
    };
    let direction = if arguments.reverse {
        Direction::Reverse
    } else {
        Direction::Forward
    };
    let mut cursor = tree.cursor(range.as_keys(), direction);
    let mut value = Vec::new();
    let mut left = arguments.limit;
    while left > 0 && cursor.advance()? {
        value.clear();
        if !arguments.keys_only {
            cursor.value_into(&mut value)?;
        }
        let shown = (!arguments.keys_only).then_some(&*value);
        output.line(&format!("{{{}}}", collection::record(raw.form, cursor.key(), shown)))?;
        left -= 1;
    }
    Ok(())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    store::read(&arguments.path, |database| {
        let mut output = Output::new();
        let scanned = scan(database, arguments, &mut output);
        output.end(scanned)
    })
}
