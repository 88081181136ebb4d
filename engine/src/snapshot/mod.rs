//! Read views: a snapshot of the whole database, a collection within it, and a cursor over that.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::memtable::{Found, Records};
use crate::node::{Child, Node};
use crate::pages::Pager;
use crate::range::{Direction, KeyRange};
use crate::state::{CLIENTS, Collection, CollectionInfo, Config, Entry, Index, Shared, Version, expiry};
use crate::tree::value::{self, ValuePart};
use crate::tree::{Pages, read};

mod cursor;
mod cursor_records;
mod index;

pub use cursor::Cursor;
pub use cursor_records::CursorRecords;
pub(crate) use cursor_records::Steps;
pub(crate) use index::split;
pub use index::{IndexCursor, IndexInfo, SnapshotIndex};

/// Keeps the pages of a version from being reused.
struct Pin {
    shared: Arc<Shared>,
    version: Arc<Version>,
    /// When the snapshot was taken; records that expire later stay visible in it.
    now: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.published().unpin(self.version.age());
    }
}

/// A read view of one version of the database. Cheap to clone; the version keeps its space until
/// the last clone is dropped.
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

    /// One of the engine's own collections.
    pub(crate) fn hidden(&self, name: &str) -> Option<&Collection> {
        self.pin.version.collections.get(name)
    }

    /// The version whose space the snapshot keeps.
    #[cfg(feature = "testing")]
    pub(crate) fn pinned(&self) -> &Version {
        &self.pin.version
    }

    /// The database's shared state and the pinned version.
    pub(super) fn parts(&self) -> (&Arc<Shared>, &Arc<Version>) {
        (&self.pin.shared, &self.pin.version)
    }

    /// A snapshot for an optimistic transaction; the history keeps all later commits for it.
    pub(crate) fn for_transaction(shared: &Arc<Shared>) -> Self {
        let mut history = shared.history();
        let snapshot = Self::new(shared);
        history.enter(snapshot.version());
        drop(history);
        snapshot
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.pin.shared
    }

    pub(crate) fn config(&self) -> &Config {
        &self.pin.shared.config
    }

    /// Commit sequence number of the newest commit in the snapshot.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.pin.version.version
    }

    /// Time at which the snapshot was made: records that had expired by then are invisible.
    pub(crate) fn now(&self) -> u64 {
        self.pin.now
    }

    /// A collection as of this version; `None` if there was none of that name.
    #[must_use]
    pub fn collection(&self, name: &str) -> Option<SnapshotCollection> {
        if name.starts_with(expiry::HIDDEN) {
            return None;
        }
        self.tree(name)
    }

    /// As [`collection`](Self::collection), for hidden collections too.
    pub(crate) fn tree(&self, name: &str) -> Option<SnapshotCollection> {
        let collections = &self.pin.version.collections;
        let (name, collection) = collections.get_key_value(name)?;
        let any_hints = self.pin.version.has_hints();
        let hints = any_hints.then(|| collections.get(&expiry::hints_of(collection.id)));
        Some(SnapshotCollection {
            view: Arc::new(View {
                snapshot: self.clone(),
                collection: collection.shared(),
                root_node: OnceLock::new(),
                name: name.as_str().into(),
                hints: hints.flatten().cloned(),
                expired: OnceLock::new(),
            }),
        })
    }

    /// Whether the visible records depend on when the snapshot was taken as well as on its version,
    /// because records may expire.
    #[must_use]
    pub fn may_expire(&self) -> bool {
        self.pin.version.has_hints()
    }

    /// Codec ids of a collection's keys and values; empty if none were recorded, `None` if the
    /// collection does not exist. O(log n) for n collections.
    #[must_use]
    pub fn codecs(&self, name: &str) -> Option<(&str, &str)> {
        let found = self.pin.version.collections.get(name);
        let found = found.filter(|_| !name.starts_with(expiry::HIDDEN))?;
        Some((&found.key_codec, &found.value_codec))
    }

    /// All collections, ordered by name.
    #[must_use]
    pub fn collections(&self) -> Vec<CollectionInfo> {
        self.pin.version.infos(&self.pin.shared.pager)
    }
}

/// One collection in a snapshot. Cheap to clone.
#[derive(Clone)]
pub struct SnapshotCollection {
    view: Arc<View>,
}

struct View {
    snapshot: Snapshot,
    collection: Collection,
    /// The root's page, cached on first use so that threads do not contend for the page table.
    root_node: OnceLock<Arc<Node>>,
    name: Box<str>,
    /// The collection's expiry hints.
    hints: Option<Collection>,
    /// Positions of the expired records, computed on first use.
    expired: OnceLock<Vec<u64>>,
}

impl SnapshotCollection {
    fn shared(&self) -> &Shared {
        &self.view.snapshot.pin.shared
    }

    pub(super) fn pager(&self) -> &Pager {
        &self.view.snapshot.pin.shared.pager
    }

    fn root(&self) -> Option<&Child> {
        self.view.collection.root.as_ref()
    }

    pub(super) fn records(&self) -> Records<'_, Pager> {
        let View { collection, hints, .. } = &*self.view;
        Records {
            gaps: Some(&collection.gaps),
            now: if hints.is_some() { self.now() } else { 0 },
            ..collection.records(self.pager())
        }
    }

    /// The root's page if it is in memory.
    fn root_node(&self) -> Option<&Arc<Node>> {
        let cached = &self.view.root_node;
        if cached.get().is_none() {
            let node = self.pager().lookup(&self.root()?.pointer).ok()?;
            // Another thread may have set the same page first.
            let _ = cached.set(node);
        }
        cached.get()
    }

    pub(super) fn now(&self) -> u64 {
        self.view.snapshot.now()
    }

    /// Whether records of this collection may expire.
    pub(crate) fn has_hints(&self) -> bool {
        self.view.hints.is_some()
    }

    pub(crate) fn id(&self) -> u32 {
        self.view.collection.id
    }

    pub(crate) fn indexes(&self) -> Option<&Arc<[Index]>> {
        self.view.collection.indexes.as_ref()
    }

    /// The collection as stored: its cursors and counts include expired records not yet purged.
    pub(crate) fn with_expired(&self) -> Self {
        let View {
            snapshot,
            collection,
            name,
            ..
        } = &*self.view;
        Self {
            view: Arc::new(View {
                snapshot: snapshot.clone(),
                collection: collection.shared(),
                root_node: OnceLock::new(),
                name: name.clone(),
                hints: None,
                expired: OnceLock::new(),
            }),
        }
    }

    /// Adds the collection's name to errors.
    pub(super) fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error: Error| self.shared().or_stale(error).in_collection(&self.view.name))
    }

    fn find(&self, key: &[u8]) -> Result<Option<Found<'_>>> {
        if let Some(entry) = self.view.collection.layers.get(key) {
            let found = entry.payload.map(Found::Memory);
            return Ok(found.filter(|found| !found.record().is_expired(self.now())));
        }
        // A key over the limit cannot exist; looking it up is no error.
        let Some(root) = self.root() else { return Ok(None) };
        let node = match self.root_node() {
            Some(node) => node,
            None => &self.pager().root(root, self.id())?,
        };
        let found = read::find_below(self.pager(), node, self.id(), key)?;
        let found = found.filter(|found| match found.leaf.inline_value(found.index) {
            Some((_, 0)) => true,
            _ => !found.leaf.record(found.index).is_expired(self.now()),
        });
        Ok(found.map(Found::Leaf))
    }

    /// Positions of expired records not yet purged, ascending. Purging keeps them few.
    pub(super) fn expired(&self) -> Result<&[u64]> {
        let Some(hints) = &self.view.hints else {
            return Ok(&[]);
        };
        if let Some(positions) = self.view.expired.get() {
            return Ok(positions);
        }
        let positions = expiry::expired_positions(self.pager(), &self.view.collection, hints, self.now())?;
        Ok(self.view.expired.get_or_init(|| positions))
    }

    /// Converts a position among all records to one among those that have not expired.
    fn visible_position(&self, position: u64) -> Result<u64> {
        let expired = self.expired()?;
        Ok(position - expired.partition_point(|hidden| *hidden < position) as u64)
    }

    /// Converts a position among the records that have not expired to one among all.
    fn stored_position(&self, mut position: u64) -> Result<u64> {
        for hidden in self.expired()? {
            if *hidden > position {
                break;
            }
            position += 1;
        }
        Ok(position)
    }

    fn value_of(&self, found: &Found<'_>, into: &mut Vec<u8>) -> Result<()> {
        if let Found::Leaf(found) = found
            && let Some((value, _)) = found.leaf.inline_value(found.index)
        {
            into.extend_from_slice(value);
            return Ok(());
        }
        value::read(&self.pager().blocks, self.id(), &found.record(), into)
    }

    /// Number of records: O(1), plus O(log n) for each expired record not yet purged.
    #[must_use]
    pub fn len(&self) -> u64 {
        let stored = self.view.collection.count(self.pager());
        // If the hints cannot be read, reading the records reports the error.
        stored - self.expired().map_or(0, |expired| expired.len() as u64)
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a key, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        Ok(self.get_into(key, &mut bytes)?.then_some(bytes))
    }

    /// Appends the value of a key to `into`; `false`, with nothing appended, if the key does not
    /// exist.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        self.named(self.find(key).and_then(|found| match found {
            Some(found) => self.value_of(&found, into).map(|()| true),
            None => Ok(false),
        }))
    }

    /// Returns a record with its version and expiry, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.named(self.find(key).and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            let record = found.record();
            let mut value = Vec::new();
            self.value_of(&found, &mut value)?;
            Ok(Some(Entry {
                value,
                version: record.version,
                expires_at: (record.expires != 0).then_some(record.expires),
            }))
        }))
    }

    /// Returns the part of a key's value that a range of offsets has, and the value's length. Reads
    /// only the blocks that overlap it: an empty range reads none of the value. Blocks of long
    /// values hold up to 1 MiB each. O(log n).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mangrove_engine::{Database, Durability, Options, storage::MemoryStorage};
    /// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
    /// database.set("files", b"poem", b"no coward soul", Durability::Relaxed)?;
    /// let files = database.snapshot().collection("files").expect("it was just written");
    /// let part = files.get_range(b"poem", 3..9)?.expect("it was just written");
    /// assert_eq!((part.bytes.as_slice(), part.value_len), (b"coward".as_slice(), 14));
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn get_range(&self, key: &[u8], range: Range<u64>) -> Result<Option<ValuePart>> {
        let part = |found: Found<'_>| value::read_range(&self.pager().blocks, self.id(), &found.record(), &range);
        self.named(self.find(key).and_then(|found| found.map(part).transpose()))
    }

    /// Value and expiry of a record, expired or not; 0 means never.
    pub(crate) fn stored(&self, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>> {
        self.named(self.records().find(key).and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            let mut value = Vec::new();
            self.value_of(&found, &mut value)?;
            Ok(Some((value, found.record().expires)))
        }))
    }

    /// Index keys in the cell of a record, expired or not, and its expiry.
    pub(crate) fn stored_index_keys(&self, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>> {
        self.named(self.records().find(key).map(|found| {
            let found = found?;
            let record = found.record();
            Some((record.index_keys.to_vec(), record.expires))
        }))
    }

    /// Whether a key exists, O(log n), without reading its value.
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

    /// Positions in key order of the first record in a range and the first one past it, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn positions(&self, range: &KeyRange<'_>) -> Result<(u64, u64)> {
        let stored = self.records().positions(range);
        let visible = stored.and_then(|(from, to)| Ok((self.visible_position(from)?, self.visible_position(to)?)));
        self.named(visible)
    }

    /// When the next record in a range expires, in milliseconds since 1970; `None` if none does.
    /// O(log n), unless many records outside the range expire first: after a thousand of them the
    /// answer is a time before which no record in the range expires.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn next_expiry(&self, range: &KeyRange<'_>) -> Result<Option<u64>> {
        let Some(hints) = &self.view.hints else {
            return Ok(None);
        };
        self.named(expiry::next_expiry(
            self.pager(),
            &self.view.collection,
            hints,
            range,
            self.now(),
        ))
    }

    /// Number of records with keys below `key`, O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn rank(&self, key: &[u8]) -> Result<u64> {
        let rank = self.records().rank(key);
        self.named(rank.and_then(|below| self.visible_position(below)))
    }

    /// Returns the record at position `index` in key order, O(log n); `None` past the end.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn at(&self, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if index == 0 {
            return self.first();
        }
        let found = self.stored_position(index).and_then(|index| self.records().at(index));
        self.named(found.and_then(|found| {
            let Some((key, found)) = found else { return Ok(None) };
            let mut bytes = Vec::new();
            self.value_of(&found, &mut bytes)?;
            Ok(Some((key, bytes)))
        }))
    }

    /// Returns the record with the lowest key.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor(KeyRange::all(), Direction::Forward).step()
    }

    /// Returns the record with the highest key.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor(KeyRange::all(), Direction::Reverse).step()
    }

    /// Returns a cursor positioned before the first record of a range in the given direction.
    #[must_use]
    pub fn cursor(&self, range: KeyRange<'_>, direction: Direction) -> Cursor {
        Cursor {
            inner: self
                .view
                .collection
                .cursor(&range, direction)
                .with_root(self.root_node()),
            tree: self.clone(),
            is_plain: !self.has_hints(),
        }
    }
}

impl Snapshot {
    /// Returns the bytes that [`ExclusiveTransaction::remember_client`](crate::ExclusiveTransaction::remember_client)
    /// last stored for a client. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn client(&self, client: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(collection) = self.hidden(CLIENTS) else {
            return Ok(None);
        };
        let (shared, _) = self.parts();
        let Some(found) = collection.records(&shared.pager).find(client)? else {
            return Ok(None);
        };
        let mut what = Vec::new();
        value::read(&shared.pager.blocks, collection.id, &found.record(), &mut what)?;
        Ok(Some(what))
    }

    /// Returns the names of all clients with stored data, in order. O(n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn clients(&self) -> Result<Vec<Vec<u8>>> {
        let Some(collection) = self.hidden(CLIENTS) else {
            return Ok(Vec::new());
        };
        let (shared, _) = self.parts();
        let mut cursor = collection.cursor(&KeyRange::all(), Direction::Forward);
        let mut clients = Vec::new();
        while cursor.advance(&collection.records(&shared.pager))? {
            clients.push(cursor.key().to_vec());
        }
        Ok(clients)
    }
}
