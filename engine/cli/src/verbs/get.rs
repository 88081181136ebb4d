//! `get`: one value.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::CollectionArguments;
use crate::collection::{self, Codecs};
use crate::failure::{Failure, Result};
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
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let CollectionArguments { collection, raw } = &arguments.target;
    let store = Store::open(&arguments.path, Access::Read)?;
    let codecs = Codecs::stored(&store.database, collection, raw.form);
    let key = codecs.key(&arguments.key)?;
    let value = match collection::tree(&store.database.snapshot(), collection)? {
        Some(tree) => tree.get(&key)?,
        None => None,
    };
    let value = value.ok_or_else(|| Failure::not_found(format!("there is no key {}", arguments.key)))?;
    print(&codecs.value.decode(&value)?)
}
