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

/// A tree of an indexed collection.
#[derive(Clone, Copy)]
enum Part {
    /// The records.
    Records,
    /// The index keys that records keep apart.
    Apart,
    /// The index with this id.
    Index(u32),
}

/// A part to read.
struct Scan {
    /// The indexed collection.
    collection: String,
    part: Part,
}

/// A check in progress.
pub(super) struct IndexCheck {
    /// Collections still to read, the next one last.
    scans: Vec<Scan>,
    cursor: Option<LayeredCursor>,
    /// Records that expired before are not checked: it is removed step by step.
    now: u64,
}

impl IndexCheck {
    /// Unless `is_sound`, it checks nothing: unreadable blocks have been reported already.
    pub(super) fn new(version: &Version, now: u64, is_sound: bool) -> Self {
        let mut scans = Vec::new();
        for (name, collection) in version.collections.iter().filter(|_| is_sound) {
            let mut add = |part| {
                scans.push(Scan {
                    collection: name.clone(),
                    part,
                });
            };
            if !collection.indexes().is_empty() {
                add(Part::Records);
                add(Part::Apart);
            }
            for index in collection.indexes() {
                add(Part::Index(index.id));
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
        let Some(Scan { collection, part }) = self.scans.last() else {
            return Ok(false);
        };
        let Some(records) = version.collections.get(collection) else {
            return Ok(false);
        };
        let find = |name: String| version.collections.get(&name);
        let indexed = IndexedRecords {
            pages,
            version,
            records,
            apart: find(index_keys_of(records.id)),
        };
        let source = match *part {
            Part::Records => records,
            Part::Apart => match indexed.apart {
                Some(apart) => apart,
                None => return Ok(false),
            },
            Part::Index(id) => {
                find(index_of(id)).ok_or_else(|| Error::corrupt("the collection of an index is missing"))?
            }
        };
        let all = KeyRange::all();
        let cursor = self
            .cursor
            .get_or_insert_with(|| source.cursor(&all, Direction::Forward));
        if !cursor.advance(&source.records(pages))? {
            return Ok(false);
        }
        let Some(cell) = cursor.record() else { return Ok(false) };
        if cell.is_expired(self.now) {
            return Ok(true);
        }
        match *part {
            Part::Records => indexed.check_record(cursor.key(), &cell)?,
            Part::Apart => indexed.check_apart(cursor.key(), &cell)?,
            Part::Index(id) => indexed.check_entry(id, cursor.key(), &cell)?,
        }
        Ok(true)
    }
}

/// An indexed collection in the version that is checked.
struct IndexedRecords<'a> {
    pages: &'a Pager,
    version: &'a Version,
    records: &'a Collection,
    /// The index keys that records keep apart.
    apart: Option<&'a Collection>,
}

impl IndexedRecords<'_> {
    /// Expiry of a record of a collection, if there is one under this key.
    fn expiry_of(&self, collection: &Collection, key: &[u8]) -> Result<Option<u64>> {
        let found = collection.records(self.pages).find(key)?;
        Ok(found.map(|found| found.record().expires))
    }

    /// All index keys of a record.
    fn keys_of(&self, key: &[u8], cell: &LeafCell<'_>) -> Result<IndexKeys> {
        let malformed = || Error::corrupt("the index keys of a record are malformed").covering(key, Some(key));
        let mut keys = IndexKeys::decode(cell.index_keys).ok_or_else(malformed)?;
        if let Some(apart) = self.apart
            && let Some(found) = apart.records(self.pages).find(key)?
        {
            let mut bytes = Vec::new();
            value::read(&self.pages.blocks, apart.id, &found.record(), &mut bytes)?;
            keys.merge(IndexKeys::decode(&bytes).ok_or_else(malformed)?);
        }
        Ok(keys)
    }

    /// Checks that the indexes have all index keys of a record.
    fn check_record(&self, key: &[u8], cell: &LeafCell<'_>) -> Result<()> {
        let stated = self.keys_of(key, cell)?;
        for index in self.records.indexes() {
            let Some(entries) = self.version.collections.get(&index_of(index.id)) else {
                continue;
            };
            for index_key in stated.get(index.id) {
                if self.expiry_of(entries, &entry_key(index_key, key))? != Some(cell.expires) {
                    let what =
                        "an index lacks a record, or has it with another expiry; drop the index and declare it again";
                    return Err(Error::corrupt(what).covering(key, Some(key)));
                }
            }
        }
        Ok(())
    }

    /// Checks that a record exists if index keys are stored apart for it.
    fn check_apart(&self, key: &[u8], cell: &LeafCell<'_>) -> Result<()> {
        if self.expiry_of(self.records, key)? == Some(cell.expires) {
            return Ok(());
        }
        let what = "index keys are stored for a record that does not exist or expires at another time";
        Err(Error::corrupt(what).covering(key, Some(key)))
    }

    /// Checks that an entry of an index belongs to a record.
    fn check_entry(&self, index: u32, entry: &[u8], cell: &LeafCell<'_>) -> Result<()> {
        let Some((index_key, key)) = split_entry_key(entry) else {
            return Err(Error::corrupt("an index holds a malformed key").covering(entry, Some(entry)));
        };
        let found = self.records.records(self.pages).find(key)?;
        let stated = match &found {
            Some(found) if found.record().expires == cell.expires => self.keys_of(key, &found.record())?,
            _ => IndexKeys::new(),
        };
        if stated.get(index).contains(&index_key) {
            return Ok(());
        }
        let what = "an index has an entry that its record does not have; drop the index and declare it again";
        Err(Error::corrupt(what).covering(key, Some(key)))
    }
}
