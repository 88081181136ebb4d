//! `bench`: a self-test that prints figures.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use mangrove_engine::{Database, Direction, Durability, Error, KeyRange};
use serde_json::{Value, json};

use crate::arguments::DurabilityArguments;
use crate::failure::{Failure, Result};
use crate::output::print;
use crate::store::{Access, Store};

/// Records per transaction.
const BATCH: u32 = 1000;
const COLLECTION: &str = "";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory for the database, which must not exist; it is removed afterwards.
    path: PathBuf,
    /// Records to write and read.
    #[arg(long, value_name = "COUNT", default_value = "100000")]
    count: NonZeroU32,
    /// Length of the values.
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    value_bytes: u32,
    #[command(flatten)]
    durability: DurabilityArguments,
}

/// Returns the key of a number, a bijection of 32-bit numbers: keys are in no order.
fn key_of(index: u32) -> [u8; 4] {
    (index.wrapping_mul(0x9e37_79b1) ^ 0x55aa_55aa).to_be_bytes()
}

fn fill_value(index: u32, value: &mut [u8]) {
    let mut state = u64::from(index) + 1;
    for chunk in value.chunks_mut(4) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chunk.copy_from_slice(&((state >> 32) as u32).to_le_bytes()[..chunk.len()]);
    }
}

fn per_second(count: u32, start: Instant) -> u64 {
    #[allow(clippy::cast_sign_loss, reason = "both are positive")]
    let rate = (f64::from(count) / start.elapsed().as_secs_f64()).round() as u64;
    rate
}

fn measure(database: &Database, arguments: &Arguments) -> Result<Value> {
    let count = arguments.count.get();
    let durability: Durability = arguments.durability.durability.into();
    let mut value = vec![0; arguments.value_bytes as usize];
    let wrong = |what: &str| Failure::self_test(format!("the self-test failed: {what}"));

    let start = Instant::now();
    for batch in (0..count).step_by(BATCH as usize) {
        let mut transaction = database.begin()?;
        for index in batch..count.min(batch.saturating_add(BATCH)) {
            fill_value(index, &mut value);
            transaction.set(COLLECTION, &key_of(index), &value)?;
        }
        transaction.commit(durability)?;
    }
    let sets = per_second(count, start);

    let snapshot = database.snapshot();
    let tree = snapshot
        .collection(COLLECTION)
        .ok_or_else(|| wrong("nothing was written"))?;
    let mut found = Vec::new();
    let start = Instant::now();
    for index in 0..count {
        found.clear();
        fill_value(index, &mut value);
        if !tree.get_into(&key_of(index), &mut found)? || found != value {
            return Err(wrong("a value differs from what was written"));
        }
    }
    let gets = per_second(count, start);

    let start = Instant::now();
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    let mut scanned = 0;
    while cursor.advance()? {
        found.clear();
        cursor.value_into(&mut found)?;
        scanned += 1;
    }
    let scans = per_second(count, start);
    if scanned != count {
        return Err(wrong("a scan does not see every record"));
    }
    Ok(json!({
        "count": count,
        "valueBytes": arguments.value_bytes,
        "setsPerSecond": sets,
        "getsPerSecond": gets,
        "scannedPerSecond": scans,
        "fileSize": database.stats().file_bytes,
    }))
}

/// Removes what was created, whatever else happens.
struct Cleanup<'a>(&'a Path);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = &arguments.path;
    if path.symlink_metadata().is_ok() {
        let what = path.display().to_string();
        return Err(Error::AlreadyExists { what: what.into() }.into());
    }
    let cleanup = Cleanup(path);
    let figures = Store::open(path, Access::CreateNew)?.write(|database| measure(database, arguments))?;
    drop(cleanup);
    print(&figures.to_string())
}
