//! Proves that databases written by earlier builds stay readable, and that this build writes the
//! same bytes.
//!
//! `tests/golden` holds small databases of file format 4, and of 5, that of encrypted ones: those of
//! builds that did not flush the header of a log ahead of its first record, and in `v4.1` and `v5.1`
//! those of today. An intended change of the format needs a new version number and new files beside
//! these; `cargo test -p mangrove-engine --test engine golden -- --ignored` writes those that are
//! missing and changes none.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{State, digests, read_state};
use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{AdvancedOptions, Compression, Database, Durability, IndexBy, IndexedCollection, Key, Options};

type Files = BTreeMap<String, Vec<u8>>;

/// Directories of the files of each build, those of encrypted databases second. The last are today's.
const BUILDS: [[&str; 2]; 2] = [["v4", "v5"], TODAY];
const TODAY: [&str; 2] = ["v4.1", "v5.1"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    /// Never written to.
    Empty,
    /// Several collections, splits and merges, LZ4; the log is empty.
    Closed,
    /// The same, uncompressed.
    ClosedUncompressed,
    /// A checkpoint, followed by commits in both halves of the log.
    WithLog,
    /// Values of one block and of several chunks, some referenced by the log only.
    OutOfLine,
    /// Without a log.
    Unlogged,
    /// A collection with indexes: index keys in leaves, others apart because they are long or were
    /// added by a build; the newest commits are in the log only.
    Indexed,
    /// As `WithLog`, with a key.
    Encrypted,
}

const CASES: [(Case, &str); 8] = [
    (Case::Empty, "empty"),
    (Case::Closed, "closed-lz4"),
    (Case::ClosedUncompressed, "closed-uncompressed"),
    (Case::WithLog, "with-log"),
    (Case::OutOfLine, "out-of-line"),
    (Case::Unlogged, "unlogged"),
    (Case::Indexed, "indexed"),
    (Case::Encrypted, "encrypted"),
];

const INDEXED: &str = "notes";

/// The indexes of [`Case::Indexed`], of which the second one is built after the first records were
/// written.
fn indexes() -> Vec<IndexBy> {
    vec![
        IndexBy::multi("byte", |_, value| {
            value.iter().take(3).map(|byte| vec![*byte]).collect::<Vec<_>>()
        }),
        IndexBy::multi("start", |_, value| vec![value[..value.len().min(100)].to_vec()]).version(2),
    ]
}

/// Makes one commit to the collection with indexes.
fn commit_indexed(database: &Database, notes: &IndexedCollection<'_>, state: &mut State, round: u32) {
    let mut transaction = database.begin().expect("memory works");
    let records = state.entry(INDEXED.to_owned()).or_default();
    for part in 0..8_u32 {
        let key = format!("{:02}", (part * 3 + round * 5) % 20).into_bytes();
        if part == 5 {
            transaction.delete(INDEXED, &key).expect("memory works");
            records.remove(&key);
            continue;
        }
        // The longest leave no room for index keys in the leaf.
        let value = value(round * 16 + part, [3, 20, 90, 600][part as usize % 4]);
        notes.set(&mut transaction, &key, &value, None).expect("memory works");
        records.insert(key, value);
    }
    transaction.commit(Durability::Strict).expect("memory works");
}

fn make_indexed(database: &Database) -> State {
    let mut state = State::new();
    let first: Vec<IndexBy> = indexes().into_iter().take(1).collect();
    let notes = database.indexed_collection(INDEXED, first).expect("it is new");
    commit_indexed(database, &notes, &mut state, 0);
    let notes = database.indexed_collection(INDEXED, indexes()).expect("it is newer");
    let built = notes.build(&mut |_, _| ControlFlow::Continue(()));
    assert!(built.expect("memory works"));
    commit_indexed(database, &notes, &mut state, 1);
    database.checkpoint().expect("memory works");
    commit_indexed(database, &notes, &mut state, 2);
    state
}

thread_local! {
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

/// The key of a case. What it draws is not random, so that the bytes are always the same.
fn key(case: Case) -> Option<Key> {
    let draw = |buffer: &mut [u8]| {
        for byte in buffer {
            let drawn = DRAWN.get() + 1;
            DRAWN.set(drawn);
            *byte = (drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        }
    };
    (case == Case::Encrypted).then(|| Key::with_random([3; 32], draw))
}

fn options(case: Case, session: u64) -> Options {
    Options {
        compression: if case == Case::ClosedUncompressed {
            Compression::None
        } else {
            Compression::Lz4
        },
        key: key(case),
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            database_id: Some(0x0123_4567_89AB_CDEF_0011_2233_4455_6677),
            session: Some(session),
            log_bytes: Some(if case == Case::Unlogged { 0 } else { 8 << 10 }),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn value(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number + at as u32 / 3) as u8).collect()
}

/// Makes one commit that sets some records and removes others.
fn commit(database: &Database, state: &mut State, round: u32, len: usize) {
    let mut transaction = database.begin().expect("memory works");
    for (name, codec) in [("", ""), ("cities", "tuple"), ("größe", "bytes")] {
        transaction.set_codecs(name, codec, codec).expect("memory works");
        let records = state.entry(name.to_owned()).or_default();
        for part in 0..12_u32 {
            let key = format!("{:03}", (part * 7 + round * 5) % 40).into_bytes();
            if part % 4 == 3 {
                let found = transaction.delete(name, &key).expect("memory works");
                assert_eq!(found, records.remove(&key).is_some());
            } else {
                let value = value(round * 16 + part, (len + part as usize * 3) % (len + 1));
                transaction.set(name, &key, &value).expect("memory works");
                records.insert(key, value);
            }
        }
    }
    transaction.commit(Durability::Strict).expect("memory works");
}

/// Creates the database of a case; returns its files and content.
fn make(case: Case) -> (Files, State) {
    DRAWN.set(0);
    let storage = MemoryStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options(case, 1)).expect("memory works");
    let mut state = State::new();
    if case == Case::OutOfLine {
        let long = vec![7; 3 << 19];
        let mut transaction = database.begin().expect("memory works");
        transaction.set("long", b"", &long).expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
        state.insert("long".to_owned(), BTreeMap::from([(Vec::new(), long)]));
    }
    if case == Case::Indexed {
        let state = make_indexed(&database);
        drop(database);
        return (storage.files(), state);
    }
    let (rounds, len) = match case {
        Case::Empty => (0, 0),
        Case::OutOfLine => (2, 3000),
        _ => (4, 30),
    };
    for round in 0..rounds {
        commit(&database, &mut state, round, len);
    }
    if matches!(case, Case::WithLog | Case::OutOfLine | Case::Encrypted) {
        database.checkpoint().expect("memory works");
        for round in rounds..rounds + 3 {
            commit(&database, &mut state, round, len);
        }
    }
    if matches!(case, Case::Closed | Case::ClosedUncompressed) {
        database.close().expect("memory works");
    } else {
        drop(database);
    }
    (storage.files(), state)
}

fn directory(build: [&str; 2], name: &str) -> PathBuf {
    let format = build[usize::from(name == "encrypted")];
    [env!("CARGO_MANIFEST_DIR"), "tests/golden", format, name]
        .iter()
        .collect()
}

fn load(build: [&str; 2], name: &str) -> Files {
    let entries = std::fs::read_dir(directory(build, name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("the directory can be read");
        let file = entry.file_name().into_string().expect("names are ASCII");
        (file, std::fs::read(entry.path()).expect("the file can be read"))
    };
    entries.map(read).collect()
}

#[test]
fn golden_files_are_read_exactly() {
    let all = BUILDS
        .iter()
        .flat_map(|build| CASES.map(|(case, name)| (*build, case, name)));
    for (build, case, name) in all {
        let files = load(build, name);
        let (_, state) = make(case);
        let storage = MemoryStorage::from_files(files.clone());
        let read_only = Options {
            read_only: true,
            key: key(case),
            ..Options::default()
        };
        let database = Database::open(Arc::new(storage.clone()), read_only).expect(name);
        assert!(
            read_state(&database.snapshot()).expect(name) == digests(&state),
            "{name}"
        );
        assert!(database.verify().expect(name).is_ok(), "{name}");
        let infos = database.collections();
        assert_eq!(infos.len(), state.len(), "{name}");
        for info in infos {
            let codec = match info.name.as_str() {
                "cities" => "tuple",
                "größe" => "bytes",
                _ => "",
            };
            assert_eq!(
                (info.key_codec.as_str(), info.value_codec.as_str()),
                (codec, codec),
                "{name}"
            );
        }
        drop(database);
        assert!(storage.files() == files, "{name}: reading wrote");
    }
}

#[test]
fn golden_files_can_be_written_on() {
    let all = BUILDS
        .iter()
        .flat_map(|build| CASES.map(|(case, name)| (*build, case, name)));
    for (build, case, name) in all {
        let (_, mut state) = make(case);
        let storage = MemoryStorage::from_files(load(build, name));
        for round in 10..13 {
            let database = Database::open(Arc::new(storage.clone()), options(case, u64::from(round))).expect(name);
            assert!(
                read_state(&database.snapshot()).expect(name) == digests(&state),
                "{name}"
            );
            commit(&database, &mut state, round, 50);
            assert!(database.verify().expect(name).is_ok(), "{name}");
            if round == 11 {
                database.close().expect(name);
            }
        }
    }
}

#[test]
fn the_same_database_has_the_same_bytes_today() {
    for (case, name) in CASES {
        assert!(make(case).0 == load(TODAY, name), "{name}");
    }
}

/// Writes the golden files that do not exist yet.
#[test]
#[ignore = "writes into the source tree"]
fn write_golden_files() {
    for (case, name) in CASES {
        let directory = directory(TODAY, name);
        if directory.exists() {
            continue;
        }
        std::fs::create_dir_all(&directory).expect("the source tree can be written");
        for (file, bytes) in make(case).0 {
            std::fs::write(directory.join(file), bytes).expect("the source tree can be written");
        }
    }
}
