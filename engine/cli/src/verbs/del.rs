//! `del`: removes one record.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{CollectionArguments, DurabilityArguments};
use crate::failure::Result;
use crate::output::print;
use crate::store::{Access, Store};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// Key as JSON.
    #[arg(allow_hyphen_values = true)]
    key: String,
    #[command(flatten)]
    target: CollectionArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let CollectionArguments { collection, raw } = &arguments.target;
    let found = Store::open(&arguments.path, Access::Write)?.write(|database| {
        let key = raw.form.key(&arguments.key)?;
        let mut transaction = database.begin()?;
        let found = transaction.delete(collection, &key)?;
        transaction.commit(arguments.durability.durability.into())?;
        Ok(found)
    })?;
    print(if found { "true" } else { "false" })
}
