//! `change-key`: gives an encrypted database another key.

use std::path::PathBuf;

use clap::Args;
use mangrove_engine::PassphraseCost;

use crate::failure::Result;
use crate::key::{read_key, read_passphrase};
use crate::store::{Access, Store};

#[derive(Args)]
#[group(id = "new key", required = true, args = ["new_key_file", "new_passphrase_file"])]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// File with the new key: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    /// File with the new passphrase; a line end after it is not part of it.
    #[arg(long, value_name = "FILE")]
    new_passphrase_file: Option<PathBuf>,
    /// Memory that deriving the key from the new passphrase takes.
    #[arg(long, value_name = "KIB", default_value_t = PassphraseCost::default().memory_kib)]
    memory_kib: u32,
    /// Passes over that memory.
    #[arg(long, value_name = "N", default_value_t = PassphraseCost::default().passes)]
    passes: u32,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let cost = PassphraseCost {
        memory_kib: arguments.memory_kib,
        passes: arguments.passes,
    };
    let key = match (&arguments.new_key_file, &arguments.new_passphrase_file) {
        (None, Some(file)) => read_passphrase(file, cost)?,
        (Some(file), _) => read_key(file)?,
        (None, None) => unreachable!("the arguments require one of them"),
    };
    Store::open(&arguments.path, Access::Write)?.write(|database| Ok(database.change_key(&key)?))
}
