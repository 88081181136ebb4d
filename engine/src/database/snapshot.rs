//! Read views: a snapshot of the whole database, a collection inside it, a cursor over that.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use super::{CollectionInfo, Config, Shared, Version};
use crate::error::{Error, Result};
use crate::node::Child;
use crate::transaction::Entry;
use crate::transaction::expiry::{self, Root};
use crate::tree::cursor::TreeCursor;
use crate::tree::read::{self, Found};
use crate::tree::{Direction, KeyRange, value};

/// Keeps a version's pages alive.
struct Pin {
    shared: Arc<Shared>,
    version: Arc<Version>,
    /// Time at which it was taken; what expires later stays visible in it.
    now: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.published().unpin(self.version.age());
    }
}

/// A read view of one version of the database. Cheap to clone; the version's space is kept until the last clone is dropped.
#[derive(Clone)]
pub struct Snapshot {
    pin: Arc<Pin>,
}

impl Snapshot {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let version = shared.published().pin();
        Self {
            pin: Arc::new(Pin {
                shared: Arc::clone(shared),
                version,
                now: shared.config.clock.now(),
            }),
        }
    }

    /// Owner and root of one of the engine's own collections.
    pub(super) fn hidden(&self, name: &str) -> Option<(u32, Option<Child>)> {
        let collection = self.pin.version.collections.get(name)?;
        Some((collection.id, collection.root))
    }

    /// A snapshot for an optimistic transaction, which from now on learns of all later commits.
    pub(crate) fn for_transaction(shared: &Arc<Shared>) -> Self {
        let mut history = shared.history();
        let snapshot = Self::new(shared);
        history.enter(snapshot.version());
        drop(history);
        snapshot
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
        let collections = &self.pin.version.collections;
        let (name, collection) = collections.get_key_value(name)?;
        if name.starts_with(expiry::HIDDEN) {
            return None;
        }
        // The names of hidden collections come next to the empty name, so this costs little where there are none.
        let mut from_hidden = collections.range::<str, _>((Bound::Included("\0"), Bound::Unbounded));
        let any_hidden = from_hidden
            .next()
            .is_some_and(|(name, _)| name.starts_with(expiry::HIDDEN));
        let hints = any_hidden.then(|| collections.get(&expiry::hints_of(collection.id)));
        Some(Tree {
            snapshot: self.clone(),
            root: collection.root,
            owner: collection.id,
            name: name.as_str().into(),
            hints: hints.flatten().map(|hints| (hints.id, hints.root)),
            expired: Arc::default(),
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
    /// Owner and root of the tree of expiry hints.
    hints: Option<(u32, Option<Child>)>,
    /// Positions of the expired records, once something needed them.
    expired: Arc<OnceLock<Vec<u64>>>,
}

impl Tree {
    fn shared(&self) -> &Shared {
        &self.snapshot.pin.shared
    }

    pub(crate) fn id(&self) -> u32 {
        self.owner
    }

    /// The collection as it is stored: its cursors and counts include records that have expired but were not purged.
    pub(crate) fn with_expired(self) -> Self {
        Self {
            hints: None,
            expired: Arc::default(),
            ..self
        }
    }

    /// Adds the collection's name to errors.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error: Error| error.in_collection(&self.name))
    }

    fn find(&self, key: &[u8]) -> Result<Option<Found>> {
        // A key beyond the limit cannot be there; asking for it is no error.
        let found = read::find(&self.shared().pager, self.root.as_ref(), self.owner, key)?;
        Ok(found.filter(|found| !found.leaf.record(found.index).is_expired(self.snapshot.pin.now)))
    }

    /// Positions of records that have expired but are still there, ascending. Purging keeps them few.
    fn expired(&self) -> Result<&[u64]> {
        let Some((owner, root)) = &self.hints else {
            return Ok(&[]);
        };
        if let Some(positions) = self.expired.get() {
            return Ok(positions);
        }
        let records = Root {
            root: self.root.as_ref(),
            owner: self.owner,
        };
        let hints = Root {
            root: root.as_ref(),
            owner: *owner,
        };
        let positions = expiry::expired_positions(&self.shared().pager, records, hints, self.snapshot.pin.now)?;
        Ok(self.expired.get_or_init(|| positions))
    }

    /// Position among the records that have not expired, of a position among all.
    fn visible_position(&self, position: u64) -> Result<u64> {
        let expired = self.expired()?;
        Ok(position - expired.partition_point(|hidden| *hidden < position) as u64)
    }

    /// Position among all records, of a position among those that have not expired.
    fn stored_position(&self, mut position: u64) -> Result<u64> {
        for hidden in self.expired()? {
            if *hidden > position {
                break;
            }
            position += 1;
        }
        Ok(position)
    }

    fn value_of(&self, found: &Found, into: &mut Vec<u8>) -> Result<()> {
        let record = found.leaf.record(found.index);
        value::read(&self.shared().pager.blocks, self.owner, &record, into)
    }

    /// Number of records, O(1), and O(log n) for each record that has expired and was not purged yet.
    #[must_use]
    pub fn len(&self) -> u64 {
        let stored = self.root.map_or(0, |root| root.count);
        // Where the hints cannot be read, the reads of the records will say so.
        stored - self.expired().map_or(0, |expired| expired.len() as u64)
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

    /// A record with its version and expiry, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.named(self.find(key).and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            let record = found.leaf.record(found.index);
            let mut value = Vec::new();
            self.value_of(&found, &mut value)?;
            Ok(Some(Entry {
                value,
                version: record.version,
                expires_at: (record.expires != 0).then_some(record.expires),
            }))
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
        let stored = read::positions(&self.shared().pager, self.root.as_ref(), self.owner, range);
        let visible = stored.and_then(|(from, to)| Ok((self.visible_position(from)?, self.visible_position(to)?)));
        self.named(visible)
    }

    /// Number of records with keys below `key`, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn rank(&self, key: &[u8]) -> Result<u64> {
        let rank = read::rank(&self.shared().pager, self.root.as_ref(), self.owner, key);
        self.named(rank.and_then(|(below, _)| self.visible_position(below)))
    }

    /// The record at position `index` in key order, O(log n); `None` past the end.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn at(&self, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let found = self
            .stored_position(index)
            .and_then(|index| read::at(&self.shared().pager, self.root.as_ref(), self.owner, index));
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
        let pager = &self.tree.shared().pager;
        let now = self.tree.snapshot.pin.now;
        loop {
            let advanced = self.inner.advance(pager);
            let more = self.tree.named(advanced)?;
            let expired = self.tree.hints.is_some() && self.inner.record().is_some_and(|record| record.is_expired(now));
            if !(more && expired) {
                return Ok(more);
            }
        }
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

    /// Version of the commit that wrote the current record; 0 if there is no current record.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inner.record().map_or(0, |record| record.version)
    }

    /// When the current record expires, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        let record = self.inner.record()?;
        (record.expires != 0).then_some(record.expires)
    }

    /// Passes over the next `count` records, O(log n), or O(count) while there are expired ones that were not purged.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn skip(&mut self, count: u64) -> Result<()> {
        if !self.tree.expired()?.is_empty() {
            for _ in 0..count {
                if !self.advance()? {
                    break;
                }
            }
            return Ok(());
        }
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
