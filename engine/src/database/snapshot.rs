//! Read views: a snapshot of the whole database, a collection inside it, a cursor over that.

use std::sync::Arc;

use super::{CollectionInfo, Config, Shared, Version};
use crate::error::{Error, Result};
use crate::node::Child;
use crate::tree::cursor::TreeCursor;
use crate::tree::read::{self, Found};
use crate::tree::{Direction, KeyRange, value};

/// Keeps a version's pages alive.
struct Pin {
    shared: Arc<Shared>,
    version: Arc<Version>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.published().unpin(self.version.version);
    }
}

/// A read view of one version of the database. Cheap to clone; the version's space is kept until the last clone is dropped.
#[derive(Clone)]
pub struct Snapshot {
    pin: Arc<Pin>,
}

impl Snapshot {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let version = shared.published().pin();
        Self {
            pin: Arc::new(Pin {
                shared: Arc::clone(shared),
                version,
            }),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.pin.shared.config
    }

    /// Commit sequence number of the newest commit it contains.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.pin.version.version
    }

    /// A collection as it was; `None` if there was none of that name.
    #[must_use]
    pub fn collection(&self, name: &str) -> Option<Tree> {
        let (name, collection) = self.pin.version.collections.get_key_value(name)?;
        Some(Tree {
            snapshot: self.clone(),
            root: collection.root,
            owner: collection.id,
            name: name.as_str().into(),
        })
    }

    /// All collections in the order of their names.
    #[must_use]
    pub fn collections(&self) -> Vec<CollectionInfo> {
        self.pin.version.infos()
    }
}

/// One collection inside a snapshot.
#[derive(Clone)]
pub struct Tree {
    snapshot: Snapshot,
    root: Option<Child>,
    owner: u32,
    name: Arc<str>,
}

impl Tree {
    fn shared(&self) -> &Shared {
        &self.snapshot.pin.shared
    }

    /// Adds the collection's name to errors.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error: Error| error.in_collection(&self.name))
    }

    fn find(&self, key: &[u8]) -> Result<Option<Found>> {
        // A key beyond the limit cannot be there; asking for it is no error.
        read::find(&self.shared().pager, self.root.as_ref(), self.owner, key)
    }

    fn value_of(&self, found: &Found, into: &mut Vec<u8>) -> Result<()> {
        let record = found.leaf.record(found.index);
        value::read(&self.shared().pager.blocks, self.owner, &record, into)
    }

    /// Number of records, O(1).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.root.map_or(0, |root| root.count)
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value of a key, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        Ok(self.get_into(key, &mut bytes)?.then_some(bytes))
    }

    /// Appends the value of a key to `into`; `false`, with nothing appended, if the key is not there.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        self.named(self.find(key).and_then(|found| match found {
            Some(found) => self.value_of(&found, into).map(|()| true),
            None => Ok(false),
        }))
    }

    /// Whether a key is there, O(log n), without reading its value.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.named(self.find(key).map(|found| found.is_some()))
    }

    /// Number of records in a range, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn count(&self, range: KeyRange<'_>) -> Result<u64> {
        let (from, to) = self.positions(&range)?;
        Ok(to - from)
    }

    /// Positions in key order of the first record of a range and of the first one after it, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn positions(&self, range: &KeyRange<'_>) -> Result<(u64, u64)> {
        self.named(read::positions(
            &self.shared().pager,
            self.root.as_ref(),
            self.owner,
            range,
        ))
    }

    /// Number of records with keys below `key`, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn rank(&self, key: &[u8]) -> Result<u64> {
        let rank = read::rank(&self.shared().pager, self.root.as_ref(), self.owner, key);
        self.named(rank.map(|(below, _)| below))
    }

    /// The record at position `index` in key order, O(log n); `None` past the end.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn at(&self, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let found = read::at(&self.shared().pager, self.root.as_ref(), self.owner, index);
        self.named(found.and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            let mut bytes = Vec::new();
            self.value_of(&found, &mut bytes)?;
            Ok(Some((found.leaf.key(found.index), bytes)))
        }))
    }

    /// The record with the lowest key.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.at(0)
    }

    /// The record with the highest key.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self.len().checked_sub(1) {
            Some(index) => self.at(index),
            None => Ok(None),
        }
    }

    /// A cursor before the first record of a range in the given direction.
    #[must_use]
    pub fn cursor(&self, range: KeyRange<'_>, direction: Direction) -> Cursor {
        Cursor {
            inner: TreeCursor::new(self.root, self.owner, &range, direction),
            tree: self.clone(),
        }
    }
}

/// Moves over the records of a range of a snapshot.
pub struct Cursor {
    inner: TreeCursor,
    tree: Tree,
}

impl Cursor {
    /// Goes to the next record; `false` at the end of the range. No allocation inside a leaf.
    ///
    /// # Errors
    /// Storage errors and corruption; the cursor may be advanced again.
    pub fn advance(&mut self) -> Result<bool> {
        let advanced = self.inner.advance(&self.tree.shared().pager);
        self.tree.named(advanced)
    }

    /// Key of the current record; of the last one after the end.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// Value of the current record.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] before the first and after the last record; storage errors and corruption.
    pub fn value(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.value_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the value of the current record to `into`.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn value_into(&self, into: &mut Vec<u8>) -> Result<()> {
        let record = self.inner.record().ok_or_else(|| Error::InvalidArgument {
            what: "the cursor stands on no record; advance it first".to_owned(),
        })?;
        let blocks = &self.tree.shared().pager.blocks;
        self.tree.named(value::read(blocks, self.tree.owner, &record, into))
    }

    /// Passes the current record's value on in parts, none longer than a value chunk. Errors do not name the collection.
    pub(crate) fn value_parts<E: From<Error>>(
        &self,
        each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self.inner.record() {
            Some(record) => value::read_parts(&self.tree.shared().pager.blocks, self.tree.owner, &record, each),
            None => Ok(()),
        }
    }

    /// Length of the current record's value in bytes, without reading it; 0 if there is no current record.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.inner.record().map_or(0, |record| record.value_len)
    }

    /// Passes over the next `count` records, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn skip(&mut self, count: u64) -> Result<()> {
        let skipped = self.inner.skip(&self.tree.shared().pager, count);
        self.tree.named(skipped)
    }

    /// Goes to just before the first record at or past `key` in the cursor's direction, inside its range. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let found = self.inner.seek(&self.tree.shared().pager, key);
        self.tree.named(found)
    }
}
