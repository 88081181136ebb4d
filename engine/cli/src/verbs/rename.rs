//! `rename`: gives a collection another name.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::DurabilityArguments;
use crate::failure::{Failure, Result};
use crate::output::print;
use crate::store::{Access, Store};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// Name of the collection.
    from: String,
    /// Its new name, which no collection may have.
    to: String,
    #[command(flatten)]
    durability: DurabilityArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { from, to, .. } = arguments;
    if from.is_empty() || to.is_empty() {
        return Err(Failure::argument(
            "the database's own collection, named \"\", cannot be renamed",
        ));
    }
    let found = Store::open(&arguments.path, Access::Write)?.write(|database| {
        let mut transaction = database.begin()?;
        let found = transaction.rename_collection(from, to)?;
        transaction.commit(arguments.durability.durability.into())?;
        Ok(found)
    })?;
    print(if found { "true" } else { "false" })
}
