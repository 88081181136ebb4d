//! `dump`: prints all records in the form that `load` reads.

use std::path::PathBuf;

use clap::Args;
use mangrove_engine::{CollectionInfo, Database, Direction, KeyRange, Snapshot};
use serde_json::Value;

use crate::arguments::RawArguments;
use crate::codec::Raw;
use crate::collection;
use crate::failure::Result;
use crate::output::Output;
use crate::store;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory or data file of the database.
    path: PathBuf,
    /// Only this collection; the default is all of them, each line with a "collection" field.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    #[command(flatten)]
    raw: RawArguments,
}

fn dump_all(database: &Database, arguments: &Arguments, output: &mut Output) -> Result<()> {
    let snapshot = database.snapshot();
    if let Some(name) = &arguments.collection {
        collection::tree(&snapshot, name)?;
    }
    for info in snapshot.collections() {
        match &arguments.collection {
            None => {
                let field = format!("\"collection\":{},", Value::from(&*info.name));
                dump(&snapshot, &info, &field, arguments.raw.form, output)?;
            }
            Some(name) if *name == info.name => dump(&snapshot, &info, "", arguments.raw.form, output)?,
            Some(_) => {}
        }
    }
    Ok(())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    store::read(&arguments.path, |database| {
        let mut output = Output::new();
        let dumped = dump_all(database, arguments, &mut output);
        output.end(dumped)
    })
}

fn dump(snapshot: &Snapshot, info: &CollectionInfo, field: &str, raw: Raw, output: &mut Output) -> Result<()> {
    let (key_codec, value_codec) = (&*info.key_codec, &*info.value_codec);
    // The records alone would not bring this back.
    if (key_codec, value_codec) != ("", "") || info.count == 0 {
        let (key, value) = (Value::from(key_codec), Value::from(value_codec));
        output.line(&format!("{{{field}\"keyCodec\":{key},\"valueCodec\":{value}}}"))?;
    }
    let Some(tree) = snapshot.collection(&info.name) else {
        return Ok(());
    };
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    let mut value = Vec::new();
    while cursor.advance()? {
        value.clear();
        cursor.value_into(&mut value)?;
        output.line(&format!(
            "{{{field}{}}}",
            collection::record(raw, cursor.key(), Some(&value))
        ))?;
    }
    Ok(())
}
