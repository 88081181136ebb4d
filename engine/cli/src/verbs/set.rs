//! `set`: stores one record.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;

use crate::arguments::{CollectionArguments, DurabilityArguments};
use crate::failure::{Failure, Result};
use crate::store::{Access, Store};
use crate::system::StandardInput;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database, which is created if it is missing.
    path: PathBuf,
    /// Key as JSON.
    #[arg(allow_hyphen_values = true)]
    key: String,
    /// Value as JSON; without it standard input is read.
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
    #[command(flatten)]
    target: CollectionArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
}

/// Editors and shells of Windows write it in front of UTF-8.
pub(crate) const BYTE_ORDER_MARK: &str = "\u{feff}";

fn read_input() -> Result<String> {
    let mut text = String::new();
    let read = StandardInput::open().and_then(|mut input| input.read_to_string(&mut text));
    read.map_err(|error| Failure::io("reading standard input", &error))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let CollectionArguments { collection, raw } = &arguments.target;
    let value = arguments.value.clone().map_or_else(read_input, Ok)?;
    // Creates no database for a record that cannot be stored in it.
    let (key, value) = (raw.form.key(&arguments.key)?, raw.form.value(&value)?);
    Store::open(&arguments.path, Access::Create)?.write(|database| {
        let mut transaction = database.begin()?;
        transaction.set(collection, &key, &value)?;
        transaction.commit(arguments.durability.durability.into())?;
        Ok(())
    })
}
