//! Proves that an index never disagrees with its collection.

mod crashes;
mod declaring;
mod model;
mod transactions;
mod upkeep;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mangrove_engine::storage::Storage;
use mangrove_engine::{
    AdvancedOptions, Clock, Database, Direction, IndexBy, IndexDefinition, IndexedCollection, KeyRange, Options,
    Snapshot,
};

pub(crate) const NAME: &str = "notes";

/// A clock that tests move.
#[derive(Clone, Default)]
pub(crate) struct Time(Arc<AtomicU64>);

impl Time {
    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn clock(&self) -> Clock {
        let time = self.clone();
        Clock::new(move || time.now())
    }
}

/// Options with small nodes, so that trees are deep and merges frequent.
pub(crate) fn options(time: &Time, session: u64) -> Options {
    Options {
        cache_bytes: 64 << 10,
        clock: time.clock(),
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(32 << 10),
            database_id: Some(7),
            session: Some(session),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

pub(crate) fn open(storage: &Arc<dyn Storage>, time: &Time, session: u64) -> Database {
    Database::open(Arc::clone(storage), options(time, session)).expect("it can be opened")
}

pub(crate) fn definition(name: &str, version: u32, unique: bool) -> IndexDefinition {
    IndexDefinition {
        name: name.to_owned(),
        version,
        unique,
    }
}

/// The first byte of a value, with the version; records with an empty value are not in the index.
pub(crate) fn first_byte(version: u32, value: &[u8]) -> Vec<Vec<u8>> {
    value
        .first()
        .map(|byte| vec![*byte, version as u8])
        .into_iter()
        .collect()
}

/// Each of a value's first four bytes.
pub(crate) fn bytes(value: &[u8]) -> Vec<Vec<u8>> {
    value.iter().take(4).map(|byte| vec![*byte]).collect()
}

pub(crate) fn by_first(version: u32) -> IndexBy {
    IndexBy::multi("first", move |_, value| first_byte(version, value)).version(version)
}

pub(crate) fn by_bytes() -> IndexBy {
    IndexBy::multi("bytes", |_, value| bytes(value))
}

/// The start of a value.
pub(crate) fn start(value: &[u8]) -> Vec<Vec<u8>> {
    vec![value[..value.len().min(40)].to_vec()]
}

pub(crate) fn by_value(unique: bool) -> IndexBy {
    let index = IndexBy::multi("value", |_, value| start(value));
    if unique { index.unique() } else { index }
}

pub(crate) fn build(collection: &IndexedCollection<'_>) {
    let whole = collection.build(&mut |_, _| ControlFlow::Continue(()));
    assert!(whole.expect("nothing fails"));
}

/// Index key and key of each entry in order.
pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// What an index of these records has to hold.
pub(crate) fn expected<'r>(
    records: impl IntoIterator<Item = (&'r Vec<u8>, &'r Vec<u8>)>,
    function: impl Fn(&[u8]) -> Vec<Vec<u8>>,
) -> Entries {
    let mut entries = Entries::new();
    for (key, value) in records {
        entries.extend(function(value).into_iter().map(|index_key| (index_key, key.clone())));
    }
    entries.sort();
    entries.dedup();
    entries
}

/// Reads an index in both directions, and by position; checks that they agree.
pub(crate) fn read_index(snapshot: &Snapshot, name: &str) -> Entries {
    let index = snapshot.index(NAME, name).expect("the index is complete");
    let read = |direction| {
        let mut entries = Entries::new();
        let mut cursor = index.cursor(KeyRange::all(), direction);
        while cursor.advance().expect("it can be read") {
            let record = snapshot.collection(NAME).expect("it is there").get(cursor.key());
            assert_eq!(
                Some(cursor.value().expect("it has a record")),
                record.expect("it can be read")
            );
            entries.push((cursor.index_key().to_vec(), cursor.key().to_vec()));
        }
        entries
    };
    let entries = read(Direction::Forward);
    let mut reverse = read(Direction::Reverse);
    reverse.reverse();
    assert_eq!(entries, reverse);
    assert_eq!(index.len(), entries.len() as u64);
    for (position, entry) in entries.iter().enumerate() {
        assert_eq!(index.at(position as u64).expect("it can be read").as_ref(), Some(entry));
        let below = entries.partition_point(|other| other.0 < entry.0);
        assert_eq!(index.rank(&entry.0).expect("it can be read"), below as u64);
    }
    assert_eq!(index.at(entries.len() as u64).expect("it can be read"), None);
    entries
}

pub(crate) fn records(snapshot: &Snapshot) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    if let Some(tree) = snapshot.collection(NAME) {
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        while cursor.advance().expect("it can be read") {
            records.insert(cursor.key().to_vec(), cursor.value().expect("it can be read"));
        }
    }
    records
}

pub(crate) fn verify(database: &Database, context: &str) {
    let report = database.verify().expect("it can be read");
    assert!(report.is_ok(), "{context}: {:?}", report.problems);
    let mut verification = database.snapshot().verification();
    let report = loop {
        if let Some(report) = verification.advance(1 << 12).expect("it can be read") {
            break report;
        }
    };
    assert!(report.is_ok(), "{context}: {:?}", report.problems);
}
