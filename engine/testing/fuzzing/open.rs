//! Whole files: opening, reading and verifying a file gives its records or an error.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::RECORD_BYTES;
use super::reseal::{self, SLOT};
use crate::database::{Database, Options};
use crate::error::{Error, Result};
use crate::range::{Direction, KeyRange};
use crate::storage::MemoryStorage;
use crate::transaction::Durability;

/// Input: the record of a superblock, then the data units. Read unchanged, and once more with all
/// checksums corrected.
pub fn open(bytes: &[u8]) -> bool {
    let mut data = expand(bytes);
    let _ = check(&data);
    reseal::file(&mut data);
    check(&data)
}

/// Expands short input to a file: the input omits the other superblocks.
fn expand(bytes: &[u8]) -> Vec<u8> {
    let (record, units) = bytes.split_at(bytes.len().min(RECORD_BYTES));
    let shift = record.get(10).map_or(9, |shift| u32::from(*shift).clamp(9, 16));
    let mut data = vec![0; SLOT];
    data.extend_from_slice(record);
    data.resize((2 * SLOT).max(1 << shift), 0);
    data.extend_from_slice(units);
    data
}

/// Shortens a file to the input that represents it. The newest superblock must be in slot B.
pub(super) fn shorten(data: &[u8]) -> Vec<u8> {
    [&data[SLOT..SLOT + RECORD_BYTES], &data[2 * SLOT..]].concat()
}

fn check(data: &[u8]) -> bool {
    let storage = MemoryStorage::from_files(BTreeMap::from([("data".to_owned(), data.to_vec())]));
    let result = read_everything(&storage);
    assert!(storage.files()["data"] == data, "reading changed the file");
    match result {
        Ok(true) => {
            assert_eq!(write_to(&storage), Ok(()));
            true
        }
        // A short file of zeros is an unfinished creation; a damaged name with a correct checksum
        // looks like an unsupported key order.
        Ok(false)
        | Err(
            Error::Corrupt(_)
            | Error::NotADatabase { .. }
            | Error::NotFound { .. }
            | Error::VersionUnsupported { .. }
            | Error::KeyOrderUnsupported { .. }
            | Error::WrongKey { is_missing: true },
        ) => false,
        Err(error) => panic!("damage must be called damage, not {error:?}"),
    }
}

/// Checks that a file that passes verification can be written, and stays intact.
fn write_to(storage: &MemoryStorage) -> Result<()> {
    let options = Options {
        cache_bytes: 64 << 10,
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options)?;
    let long = vec![b'k'; database.max_key_bytes()];
    for durability in [Durability::None, Durability::Strict, Durability::Strict] {
        let mut transaction = database.begin()?;
        for info in database.collections() {
            for number in (0..100_u8).step_by(9) {
                transaction.set(&info.name, format!("key {number:03}z").as_bytes(), &[number; 30])?;
                transaction.delete(&info.name, format!("key {number:03}").as_bytes())?;
            }
            transaction.set(&info.name, &long, &[1; 100])?;
            let range = KeyRange {
                lower: Bound::Included(b"key 03"),
                upper: Bound::Excluded(b"key 05"),
            };
            transaction.clear(&info.name, range)?;
        }
        transaction.commit(durability)?;
    }
    let report = database.verify()?;
    assert!(report.is_ok(), "{:?}", report.problems);
    Ok(())
}

/// Reads and verifies the file; returns whether it is intact.
fn read_everything(storage: &MemoryStorage) -> Result<bool> {
    let options = Options {
        create: false,
        cache_bytes: 64 << 10,
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options)?;
    let report = database.verify()?;
    let stats = database.stats();
    let mut read = Ok(());
    let mut entries = 0;
    for info in database.collections() {
        match read_collection(&database, &info.name, report.is_ok()) {
            Ok(count) => entries += count,
            Err(error) => read = Err(error),
        }
    }
    if report.is_ok() {
        assert_eq!(read, Ok(()), "verification passes what cannot be read");
        assert_eq!((entries, entries), (report.entries, stats.entries));
    }
    read?;
    Ok(report.is_ok())
}

/// Answers must be right only for a file that passes verification: a damaged file may use a page
/// twice, each time with correct checksums.
fn read_collection(database: &Database, name: &str, is_intact: bool) -> Result<u64> {
    let tree = database.snapshot().collection(name).expect("it is listed");
    // Positions come first: they trust the counts, which a complete read would find wrong.
    for index in [0, 1, tree.len() / 2, tree.len().wrapping_sub(1), u64::MAX] {
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut cursor = tree.cursor(KeyRange::all(), direction);
            let _ = cursor.skip(index).and_then(|()| cursor.advance());
            let _ = cursor.skip(index).and_then(|()| cursor.advance());
        }
        let _ = tree.at(index);
    }
    let mut keys = Vec::new();
    let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
    while cursor.advance()? {
        assert!(!is_intact || keys.last().is_none_or(|last: &Vec<u8>| last.as_slice() < cursor.key()));
        keys.push(cursor.key().to_vec());
        assert_eq!(cursor.value()?.len(), cursor.value_len());
    }
    let mut backwards = tree.cursor(KeyRange::all(), Direction::Reverse);
    for key in keys.iter().rev() {
        let advanced = backwards.advance()?;
        assert!(!is_intact || (advanced && backwards.key() == key));
    }
    let is_at_end = !backwards.advance()?;
    assert!(!is_intact || is_at_end);
    for (index, key) in keys.iter().enumerate() {
        let (found, rank) = (tree.contains(key)?, tree.rank(key)?);
        assert!(!is_intact || (found && rank == index as u64));
    }
    Ok(keys.len() as u64)
}
