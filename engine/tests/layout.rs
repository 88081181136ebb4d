//! Layouts: each unit of the file is reported exactly once and agrees with the statistics, with
//! commits between the slices.

use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::{AdvancedOptions, Database, Durability, ExtentKind, IndexBy, LayoutPart, Options, ReadWrite};

fn options() -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            node_bytes: 512,
            unit_bytes: 512,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn write(database: &Database, collection: &str, keys: std::ops::Range<u32>, len: usize, expires_at: Option<u64>) {
    let mut transaction = database.begin().expect("it is open");
    for key in keys {
        transaction
            .set_until(collection, &key.to_be_bytes(), &vec![key as u8; len], expires_at)
            .expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
}

/// Returns a database with leaves, out-of-line values, and records that expire.
fn filled(storage: &MemoryStorage) -> Database {
    let database = Database::open(Arc::new(storage.clone()), options()).expect("memory works");
    write(&database, "a", 0..2000, 40, None);
    write(&database, "b", 0..20, 5000, None);
    write(&database, "c", 0..300, 20, Some(u64::MAX - 1));
    database
}

struct Layout {
    parts: Vec<LayoutPart>,
    names: Vec<String>,
    version: u64,
    file_bytes: u64,
    node_bytes: u64,
}

fn layout_of(database: &Database, visits: usize, mut between: impl FnMut(u32)) -> Layout {
    let mut scan = database.layout_scan().expect("it is intact");
    let mut parts = Vec::new();
    let mut before = 0;
    for slice in 0.. {
        let Some(more) = scan.next_parts(visits).expect("it is intact") else {
            break;
        };
        parts.extend(more);
        let (done, total) = scan.progress();
        assert!(done >= before && done <= total);
        before = done;
        between(slice);
    }
    assert_eq!(scan.progress().0, scan.progress().1);
    let infos = scan.snapshot().collections();
    Layout {
        parts,
        names: infos.into_iter().map(|info| info.name).collect(),
        version: scan.snapshot().version(),
        file_bytes: scan.file_bytes(),
        node_bytes: scan.node_bytes() as u64,
    }
}

impl Layout {
    fn of(&self, kind: ExtentKind, collection: Option<&str>) -> Vec<LayoutPart> {
        let index =
            collection.map(|name| self.names.iter().position(|known| known == name).expect("it is there") as u32);
        let parts = self.parts.iter().copied();
        parts
            .filter(|part| part.kind == kind && (index.is_none() || part.collection == index))
            .collect()
    }

    fn bytes(&self, kind: ExtentKind) -> u64 {
        self.of(kind, None).iter().map(|part| part.units * 512).sum()
    }

    fn assert_covers(&self) {
        let mut parts: Vec<_> = self.parts.iter().filter(|part| part.units > 0).collect();
        parts.sort_by_key(|part| part.start_unit);
        let mut end = 0;
        for part in parts {
            assert_eq!(part.start_unit, end, "{part:?}");
            let has_collection = matches!(
                part.kind,
                ExtentKind::Leaf | ExtentKind::Inner | ExtentKind::Value | ExtentKind::Index
            );
            assert_eq!(part.collection.is_some(), has_collection, "{part:?}");
            end += part.units;
        }
        assert_eq!(end * 512, self.file_bytes);
    }
}

#[test]
fn each_unit_of_the_file_is_reported_once_and_agrees_with_the_statistics() {
    let storage = MemoryStorage::new();
    let database = filled(&storage);
    let _snapshot = database.snapshot();
    write(&database, "a", 0..400, 60, None);
    database.checkpoint().expect("memory works");
    let layout = layout_of(&database, 7, |_| {});
    layout.assert_covers();
    let stats = database.stats();
    assert_eq!((layout.file_bytes, layout.version), (stats.file_bytes, stats.version));
    assert_eq!(layout.bytes(ExtentKind::Free), stats.free_bytes);
    assert_eq!(layout.bytes(ExtentKind::Kept), stats.kept_bytes);
    assert!(stats.kept_bytes > 0 && layout.bytes(ExtentKind::Internal) > 0);
    assert_eq!(layout.of(ExtentKind::FreeMap, None).len(), 1);

    assert_eq!(layout.names, ["a", "b", "c"]);
    let inner = layout.of(ExtentKind::Inner, Some("a"));
    let top = inner.iter().map(|part| part.level).max();
    assert_eq!(top, Some(stats.depth - 1));
    assert_eq!(inner.iter().filter(|part| Some(part.level) == top).count(), 1);
    assert!(layout.of(ExtentKind::Leaf, Some("a")).len() > inner.len());
    for part in layout.of(ExtentKind::Leaf, None).iter().chain(&inner) {
        assert!(part.used_bytes > 0 && part.used_bytes <= layout.node_bytes, "{part:?}");
    }
    let values = |name| layout.of(ExtentKind::Value, Some(name));
    assert_eq!((values("a").len(), values("b").len(), values("c").len()), (0, 20, 0));
    assert!(values("b").iter().all(|part| part.used_bytes == 5000));
}

#[test]
fn indexes_belong_to_their_collection() {
    let storage = MemoryStorage::new();
    let database = filled(&storage);
    let second = |_: &[u8], value: &[u8]| value.get(1).map(|byte| vec![*byte]);
    let notes = database
        .indexed_collection(
            "bb",
            [
                IndexBy::new("by key", |key, _| Some(key.to_vec())),
                IndexBy::new("by value", second),
            ],
        )
        .expect("memory works");
    let mut transaction = database.begin().expect("it is open");
    for key in 0..500_u32 {
        let value = [key as u8, (key >> 4) as u8];
        notes
            .set(&mut transaction, &key.to_be_bytes(), &value, None)
            .expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
    database.checkpoint().expect("memory works");
    let layout = layout_of(&database, 7, |_| {});
    layout.assert_covers();
    assert_eq!(layout.names, ["a", "b", "bb", "c"]);
    let of_notes = layout.of(ExtentKind::Index, Some("bb"));
    assert_eq!(of_notes, layout.of(ExtentKind::Index, None));
    // 1,000 entries with a slot of eight bytes each, and the index keys of 500 records.
    let used: u64 = of_notes.iter().map(|part| part.used_bytes).sum();
    assert!(used > 1500 * 8, "{used}");
    // The expiry hints of `c` are no index.
    assert!(layout.bytes(ExtentKind::Internal) > 0);
}

#[test]
fn commits_between_the_slices_do_not_change_the_result() {
    let storage = MemoryStorage::new();
    let database = filled(&storage);
    database.checkpoint().expect("memory works");
    let still = layout_of(&database, usize::MAX, |_| {});
    let moving = layout_of(&database, 3, |slice| {
        write(&database, "a", slice..slice + 20, 50, None);
        if slice % 3 == 0 {
            database.checkpoint().expect("memory works");
        }
    });
    assert_eq!(moving.parts, still.parts);
    assert!(database.verify().expect("it is open").is_ok());
}

#[test]
fn damage_is_an_error() {
    let storage = MemoryStorage::new();
    filled(&storage).close().expect("memory works");
    let layout = {
        let database = Database::open(Arc::new(storage.clone()), options()).expect("it is intact");
        layout_of(&database, 100, |_| {})
    };
    // Not a root: opening reads roots.
    let inner = layout
        .of(ExtentKind::Inner, Some("a"))
        .into_iter()
        .find(|part| part.level == 1);
    let offset = inner.expect("there are three levels").start_unit * 512;
    storage
        .open("data", false)
        .and_then(|file| file.write_at(offset + 40, &[0xff; 64]))
        .expect("memory works");
    let database = Database::open(Arc::new(storage), options()).expect("the catalog is intact");
    let mut scan = database.layout_scan().expect("the catalog is intact");
    let error = loop {
        match scan.next_parts(10) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the damage was not noticed"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), "KV_CORRUPT");
}

/// Expiry hints, indexes and index keys that are kept apart go with their collection.
#[test]
fn nothing_is_left_of_a_dropped_collection() {
    let storage = MemoryStorage::new();
    let database = Database::open(Arc::new(storage), options()).expect("memory works");
    write(&database, "kept", 0..10, 40, None);
    write(&database, "expires", 0..300, 20, Some(u64::MAX - 1));
    let by_value = |version| IndexBy::new("value", |_, value: &[u8]| Some(value[..20].to_vec())).version(version);
    for name in ["indexed", "replaced"] {
        let indexed = database.indexed_collection(name, [by_value(1)]).expect("it is new");
        let mut transaction = database.begin().expect("it is open");
        for key in 0..200_u32 {
            let value = vec![key as u8; 60];
            indexed
                .set(&mut transaction, &key.to_be_bytes(), &value, Some(u64::MAX - 1))
                .expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
    }
    database.checkpoint().expect("memory works");
    let kinds = |database: &Database| -> Vec<ExtentKind> {
        let layout = layout_of(database, 1000, |_| {});
        layout.parts.iter().map(|part| part.kind).collect()
    };
    let before = kinds(&database);
    assert!(before.contains(&ExtentKind::Internal) && before.contains(&ExtentKind::Index));
    database
        .indexed_collection("replaced", [by_value(2)])
        .expect("it is newer");
    for name in ["expires", "indexed", "replaced"] {
        let mut transaction = database.begin().expect("it is open");
        assert_eq!(transaction.drop_collection(name), Ok(true));
        transaction.commit(Durability::Strict).expect("memory works");
        database.checkpoint().expect("memory works");
    }
    let after = kinds(&database);
    assert!(!after.contains(&ExtentKind::Internal), "{after:?}");
    assert!(!after.contains(&ExtentKind::Index), "{after:?}");
    assert!(database.verify().expect("memory works").is_ok());
}
