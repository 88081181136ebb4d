//! `set`: stores one record.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{CollectionArguments, DurabilityArguments};
use crate::codec::DEFAULT_CODECS;
use crate::collection::{self, Codecs};
use crate::failure::{Failure, Result};
use crate::store::{Access, Store};
use crate::system::system;

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
    let read = system().input().and_then(|mut input| input.read_to_string(&mut text));
    read.map_err(|error| Failure::io("reading standard input", &error))?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let CollectionArguments { collection, raw } = &arguments.target;
    let value = arguments.value.clone().map_or_else(read_input, Ok)?;
    if system().kind(&arguments.path).is_none() {
        // Creates no database for a record that cannot be stored in it.
        let codecs = Codecs::of(DEFAULT_CODECS.0, DEFAULT_CODECS.1, raw.form);
        codecs.key(&arguments.key)?;
        codecs.value(&value)?;
    }
    Store::open(&arguments.path, Access::Create)?.write(|database| {
        let codecs = Codecs::stored(database, collection, raw.form);
        let key = codecs.key(&arguments.key)?;
        let value = codecs.value(&value)?;
        let mut transaction = database.begin()?;
        collection::create(&mut transaction, database, collection)?;
        transaction.set(collection, &key, &value)?;
        transaction.commit(arguments.durability.durability.into())?;
        Ok(())
    })
}
