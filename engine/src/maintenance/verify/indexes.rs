//! Checks indexes against the records of their collections, in both directions: each index key that
//! is stored for a record is in the index, and nothing else is.

use crate::error::{Error, Result};
use crate::memtable::LayeredCursor;
use crate::node::LeafCell;
use crate::pages::Pager;
use crate::range::{Direction, KeyRange};
use crate::state::index::{entry_key, index_keys_of, index_of, split_entry_key};
use crate::state::{Collection, IndexKeys, Version};
use crate::tree::value;

/// A hidden collection to read.
struct Scan {
    /// The indexed collection.
    collection: String,
    /// The index; `None` for the index keys of the records.
    index: Option<u32>,
}

/// A check in progress.
pub(super) struct IndexCheck {
    /// Collections still to read, the next one last.
    scans: Vec<Scan>,
    cursor: Option<LayeredCursor>,
    /// What expired before is not checked: it is removed step by step.
    now: u64,
}

impl IndexCheck {
    /// Unless `is_sound`, it checks nothing: what cannot be read has been reported already.
    pub(super) fn new(version: &Version, now: u64, is_sound: bool) -> Self {
        let mut scans = Vec::new();
        for (name, collection) in version.collections.iter().filter(|_| is_sound) {
            let mut add = |index| {
                scans.push(Scan {
                    collection: name.clone(),
                    index,
                });
            };
            if !collection.indexes().is_empty() {
                add(None);
            }
            for index in collection.indexes() {
                add(Some(index.id));
            }
        }
        Self {
            scans,
            cursor: None,
            now,
        }
    }

    /// Checks one more entry; `false` at the end. Damage goes to `problems`.
    pub(super) fn step(&mut self, pages: &Pager, version: &Version, problems: &mut Vec<Error>) -> bool {
        let Some(scan) = self.scans.last() else { return false };
        let name = scan.collection.clone();
        match self.check_next(pages, version) {
            Ok(true) => {}
            Ok(false) => {
                self.scans.pop();
                self.cursor = None;
            }
            Err(error) => {
                problems.push(error.in_collection(&name));
                if !matches!(self.cursor, Some(ref cursor) if cursor.record().is_some()) {
                    self.scans.pop();
                    self.cursor = None;
                }
            }
        }
        true
    }

    fn check_next(&mut self, pages: &Pager, version: &Version) -> Result<bool> {
        let Some(Scan { collection, index }) = self.scans.last() else {
            return Ok(false);
        };
        let Some(records) = version.collections.get(collection) else {
            return Ok(false);
        };
        let find = |name: String| version.collections.get(&name);
        let Some(keys) = find(index_keys_of(records.id)) else {
            return Err(Error::corrupt("the index keys of an indexed collection are missing"));
        };
        let source = index.map_or(Some(keys), |id| find(index_of(id)));
        let Some(source) = source else {
            return Err(Error::corrupt("the collection of an index is missing"));
        };
        let all = KeyRange::all();
        let cursor = self
            .cursor
            .get_or_insert_with(|| source.cursor(&all, Direction::Forward));
        if !cursor.advance(pages)? {
            return Ok(false);
        }
        let Some(cell) = cursor.record() else { return Ok(false) };
        if cell.is_expired(self.now) {
            return Ok(true);
        }
        match index {
            None => check_record(pages, version, records, keys, cursor.key(), &cell)?,
            Some(id) => check_entry(pages, keys, *id, cursor.key(), &cell)?,
        }
        Ok(true)
    }
}

/// Expiry of a record, if there is one under this key.
fn expiry_of(pages: &Pager, collection: &Collection, key: &[u8]) -> Result<Option<u64>> {
    let found = collection.records(pages).find(key)?;
    Ok(found.map(|found| found.record().expires))
}

fn keys_in(pages: &Pager, keys: &Collection, cell: &LeafCell<'_>) -> Result<IndexKeys> {
    let mut bytes = Vec::new();
    value::read(&pages.blocks, keys.id, cell, &mut bytes)?;
    IndexKeys::decode(&bytes).ok_or_else(|| Error::corrupt("the index keys of a record are malformed"))
}

/// Checks that a record exists if index keys are stored for it, and that the indexes have them.
fn check_record(
    pages: &Pager,
    version: &Version,
    records: &Collection,
    keys: &Collection,
    key: &[u8],
    cell: &LeafCell<'_>,
) -> Result<()> {
    let wrong = |what: &str| Err(Error::corrupt(what).covering(key, Some(key)));
    if expiry_of(pages, records, key)? != Some(cell.expires) {
        return wrong("index keys are stored for a record that does not exist or expires at another time");
    }
    let stated = keys_in(pages, keys, cell)?;
    for index in records.indexes() {
        let Some(entries) = version.collections.get(&index_of(index.id)) else {
            continue;
        };
        for index_key in stated.get(index.id) {
            if expiry_of(pages, entries, &entry_key(index_key, key))? != Some(cell.expires) {
                return wrong(
                    "an index lacks a record, or has it with another expiry; drop the index and declare it again",
                );
            }
        }
    }
    Ok(())
}

/// Checks that an entry of an index belongs to a record.
fn check_entry(pages: &Pager, keys: &Collection, index: u32, entry: &[u8], cell: &LeafCell<'_>) -> Result<()> {
    let Some((index_key, key)) = split_entry_key(entry) else {
        return Err(Error::corrupt("an index holds a malformed key").covering(entry, Some(entry)));
    };
    let found = keys.records(pages).find(key)?;
    let stated = match &found {
        Some(found) if found.record().expires == cell.expires => keys_in(pages, keys, &found.record())?,
        _ => IndexKeys::new(),
    };
    if stated.get(index).contains(&index_key) {
        return Ok(());
    }
    let what = "an index has an entry that its record does not have; drop the index and declare it again";
    Err(Error::corrupt(what).covering(key, Some(key)))
}
