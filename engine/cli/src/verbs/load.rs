//! `load`: stores records from standard input, one transaction per batch of lines.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mangrove_engine::{Database, ExclusiveTransaction};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::arguments::{CollectionArguments, Durability, DurabilityArguments};
use crate::codec::Raw;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::store::{Access, Store};
use crate::system::StandardInput;
use crate::verbs::set::BYTE_ORDER_MARK;

/// Somewhat more than the longest value takes in base64.
const MAX_LINE_BYTES: u64 = 3 << 30;
const BUFFER_BYTES: usize = 1 << 16;
/// A program that writes without pausing takes no longer from line to line.
const PAUSE: Duration = Duration::from_millis(1);
/// Like `PAUSE`, within a line.
const PAUSE_WITHIN_LINE: Duration = Duration::from_millis(100);

#[derive(Args)]
#[command(after_help = "\
A line may have a \"collection\"; those without go to --collection. A line {\"keyCodec\":…,\"valueCodec\":…} creates a collection with these
codecs. Nothing of a batch with a wrong line is stored; the batches before it are.")]
pub(crate) struct Arguments {
    /// Directory or data file of the database, which is created if it is missing.
    path: PathBuf,
    #[command(flatten)]
    target: CollectionArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Number of lines in a transaction, which stores all or none of them.
    #[arg(long, value_name = "LINES", default_value = "1000")]
    batch: NonZeroUsize,
    /// Prints the key of every line, as JSON, once it survives a power cut, also with --durability
    /// relaxed. When the input pauses, the lines received so far are committed.
    #[arg(long)]
    ack: bool,
}

/// A record, or the codecs of a collection.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Line<'a> {
    #[serde(borrow)]
    collection: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    key: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    key_codec: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value_codec: Option<Cow<'a, str>>,
}

/// Names the first field that an object lacks to be a record, or codecs if it has only their
/// fields.
fn missing_in(text: &[u8]) -> Option<String> {
    let object: HashMap<String, &RawValue> = serde_json::from_slice(text).ok()?;
    let has = |name: &&str| object.contains_key(*name);
    let (record, codecs) = (["key", "value"], ["keyCodec", "valueCodec"]);
    let names = if codecs.iter().any(has) && !record.iter().any(has) {
        codecs
    } else {
        record
    };
    let missing = names.iter().find(|name| !has(name))?;
    Some(format!("{missing:?} is missing"))
}

/// Reads `null` as a key or value rather than as a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

struct Loader<'a> {
    /// The collection of lines that name none.
    collection: &'a str,
    raw: Raw,
}

impl Loader<'_> {
    /// Applies a line; returns its key, if it has one.
    fn apply<'l>(&self, transaction: &mut ExclusiveTransaction<'_>, text: &'l [u8]) -> Result<Option<&'l RawValue>> {
        let line: Line<'_> = serde_json::from_slice(text).map_err(|error| {
            let reason = missing_in(text).unwrap_or_else(|| error.to_string());
            Failure::argument(format!("not a line of {{\"key\":…,\"value\":…}} ({reason})"))
        })?;
        let name = line.collection.as_deref().unwrap_or(self.collection);
        match line {
            Line {
                key: Some(key),
                value: Some(value),
                key_codec: None,
                value_codec: None,
                ..
            } => {
                transaction.put(name, &self.raw.key(key.get())?, &self.raw.value(value.get())?)?;
                Ok(Some(key))
            }
            Line {
                key: None,
                value: None,
                key_codec: Some(key),
                value_codec: Some(value),
                ..
            } => {
                transaction.set_codecs(name, &key, &value)?;
                Ok(None)
            }
            _ => {
                let reason = missing_in(text).unwrap_or_else(|| "it has both".to_owned());
                let what = "a line has to have \"key\" and \"value\", or \"keyCodec\" and \"valueCodec\"";
                Err(Failure::argument(format!("{what} ({reason})")))
            }
        }
    }
}

/// Lines of standard input with their numbers, without empty ones.
struct Lines {
    input: BufReader<StandardInput>,
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    fn new() -> Result<Self> {
        let input = StandardInput::open().map_err(|error| Failure::io("opening standard input", &error))?;
        Ok(Self {
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            number: 0,
            line: Vec::new(),
        })
    }

    /// Whether the next line has not arrived yet.
    fn is_pausing(&mut self) -> bool {
        let buffer = self.input.buffer();
        if buffer.contains(&b'\n') {
            return false;
        }
        let moment = if buffer.is_empty() { PAUSE } else { PAUSE_WITHIN_LINE };
        !self.input.get_mut().is_ready(moment)
    }

    fn next(&mut self) -> Result<bool> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self
                .input
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut self.line);
            let count = read.map_err(|error| Failure::io("reading standard input", &error))?;
            if count as u64 == MAX_LINE_BYTES {
                return Err(Failure::argument("the line is too long").within(&format!("line {}", self.number)));
            }
            if self.number == 1 {
                let mark = BYTE_ORDER_MARK.as_bytes();
                if self.line.starts_with(mark) {
                    self.line.drain(..mark.len());
                }
            }
            if count == 0 || !self.line.trim_ascii().is_empty() {
                return Ok(count > 0);
            }
        }
    }
}

/// Echoes keys. Once the output is closed, loading continues without echoes.
struct Acknowledger {
    output: Option<Output>,
    keys: Vec<Box<str>>,
}

impl Acknowledger {
    fn committed(&mut self) -> Result<()> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let mut keys = self.keys.drain(..);
        let echoed = keys.try_for_each(|key| output.line(&key)).and_then(|()| output.flush());
        match echoed {
            Err(Failure::BrokenPipe) => {
                self.output = None;
                Ok(())
            }
            echoed => echoed,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let durability = arguments.durability.durability;
    if arguments.ack && durability == Durability::None {
        return Err(Failure::argument(
            "--ack needs commits that are durable: --durability strict or relaxed",
        ));
    }
    Store::open(&arguments.path, Access::Create)?.fill(|database| load(database, arguments, durability.into()))
}

fn load(database: &Database, arguments: &Arguments, durability: mangrove_engine::Durability) -> Result<()> {
    let loader = Loader {
        collection: &arguments.target.collection,
        raw: arguments.target.raw.form,
    };
    let mut lines = Lines::new()?;
    let mut acknowledger = Acknowledger {
        output: arguments.ack.then(Output::new),
        keys: Vec::new(),
    };
    let mut more = true;
    while more {
        let mut transaction = database.begin()?;
        for count in 0..arguments.batch.get() {
            // The writer of the next line may wait for the acknowledgement of this one.
            if arguments.ack && count > 0 && lines.is_pausing() {
                break;
            }
            more = lines.next()?;
            if !more {
                break;
            }
            let applied = loader.apply(&mut transaction, &lines.line);
            let key = applied.map_err(|failure| failure.within(&format!("line {}", lines.number)))?;
            if let (Some(key), true) = (key, acknowledger.output.is_some()) {
                acknowledger.keys.push(key.get().into());
            }
        }
        transaction.commit(durability)?;
        if arguments.ack {
            // This does nothing after a strict commit.
            database.flush()?;
        }
        acknowledger.committed()?;
    }
    Ok(())
}
