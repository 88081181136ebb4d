//! Proves that a backup holds exactly one snapshot, that restoring it yields the same database,
//! that no damage to the stream goes unnoticed, and that an interrupted restore leaves nothing that
//! opens.

mod damage;
mod expiry;
mod failures;
mod hostile;
mod incremental;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::SimRng;
use mangrove_engine::{
    AdvancedOptions, BackupOutcome, BackupProgress, CollectionInfo, Database, Direction, Durability, Error, KeyRange,
    Options, RestoreReport, Snapshot, restore,
};
use proptest::prelude::*;

type Content = Vec<(CollectionInfo, Vec<(Vec<u8>, Vec<u8>)>)>;

/// Returns options for small databases.
fn small() -> Options {
    Options {
        cache_bytes: 64 << 10,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes: 512,
            log_bytes: Some(8 << 10),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn go_on(_: BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn content_of(snapshot: &Snapshot) -> Content {
    let records = |info: &CollectionInfo| {
        let tree = snapshot.collection(&info.name).expect("it is listed");
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        let mut records = Vec::new();
        while cursor.advance().expect("it is intact") {
            records.push((cursor.key().to_vec(), cursor.value().expect("it is intact")));
        }
        records
    };
    let list = snapshot.collections();
    list.into_iter().map(|info| (info.clone(), records(&info))).collect()
}

fn backed_up(snapshot: &Snapshot) -> Vec<u8> {
    let mut stream = Vec::new();
    let report = snapshot.backup(&mut stream, &mut go_on).expect("memory works");
    assert_eq!(report.outcome, BackupOutcome::Complete);
    assert_eq!(report.bytes, stream.len() as u64);
    assert_eq!(report.version, snapshot.version());
    let counts = snapshot.collections().iter().map(|info| info.count).sum();
    assert_eq!(
        (report.records, report.collections),
        (counts, snapshot.collections().len() as u64)
    );
    stream
}

fn restored(mut stream: &[u8], options: Options) -> (RestoreReport, MemoryStorage) {
    let target = MemoryStorage::new();
    let report = restore(&mut stream, Arc::new(target.clone()), options, &mut go_on).expect("the backup is intact");
    assert_eq!(report.outcome, BackupOutcome::Complete);
    (report, target)
}

/// Backs up a snapshot, restores it, and compares.
fn check_round_trip(snapshot: &Snapshot, options: &Options) {
    let stream = backed_up(snapshot);
    let (report, target) = restored(&stream, options.clone());
    assert_eq!(
        (report.version, report.bytes),
        (snapshot.version(), stream.len() as u64)
    );
    let copy = Database::open(Arc::new(target), options.clone()).expect("it was restored");
    assert_eq!(copy.version(), snapshot.version());
    assert!(content_of(&copy.snapshot()) == content_of(snapshot));
    assert!(copy.verify().expect("it can look").is_ok());
    // The stream depends on the snapshot alone, not on its history or its place in the file.
    assert!(backed_up(&copy.snapshot()) == stream);
    // The restored database accepts writes.
    let mut transaction = copy.begin().expect("it can be written");
    transaction.set("after", b"", b"").expect("memory works");
    let info = transaction.commit(Durability::Strict).expect("memory works");
    assert_eq!(info.version, snapshot.version() + 1);
}

fn noise(seed: usize, len: usize) -> Vec<u8> {
    let mut rng = SimRng::new(seed as u64);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Returns a database with a bit of everything.
fn varied() -> Database {
    let database = Database::open(Arc::new(MemoryStorage::new()), Options::default()).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    transaction.set_codecs("coded", "any", "json").expect("it is new");
    transaction.set_codecs("half", "", "json").expect("it is new");
    transaction.set_codecs("empty", "", "").expect("it is new");
    transaction.set("", b"", b"").expect("memory works");
    transaction.set("", &[255; 4000], b"a long key").expect("memory works");
    for number in 0..5000_u16 {
        let value = noise(usize::from(number), usize::from(number) % 50);
        transaction
            .set("coded", &number.to_be_bytes(), &value)
            .expect("memory works");
    }
    for (number, len) in [5000, (1 << 20) - 32, (1 << 20) - 31, 256 << 10, 3 << 20]
        .into_iter()
        .enumerate()
    {
        transaction
            .set("large", &[number as u8], &noise(number, len))
            .expect("memory works");
    }
    transaction
        .set("large", b"zeros", &vec![0; 8 << 20])
        .expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    for number in 0..5 {
        let mut transaction = database.begin().expect("it can be written");
        transaction.set("one by one", &[number], b"x").expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
    }
    database
}

#[test]
fn everything_comes_back() {
    let snapshot = varied().snapshot();
    assert_eq!(snapshot.version(), 6);
    check_round_trip(&snapshot, &Options::default());
    check_round_trip(
        &snapshot,
        &Options {
            cache_bytes: 64 << 10,
            advanced: AdvancedOptions {
                log_bytes: Some(0),
                ..AdvancedOptions::default()
            },
            ..Options::default()
        },
    );
    // These keys do not fit into the nodes of `small()`.
    let small = Options {
        advanced: AdvancedOptions {
            unit_bytes: 65536,
            ..small().advanced
        },
        ..small()
    };
    check_round_trip(&snapshot, &small);
}

#[test]
fn a_database_without_commits_and_one_without_collections_come_back() {
    let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("memory works");
    check_round_trip(&database.snapshot(), &small());
    for change in [true, false] {
        let mut transaction = database.begin().expect("it can be written");
        if change {
            transaction.set("c", b"k", b"v").expect("memory works");
        } else {
            transaction.drop_collection("c").expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
        check_round_trip(&database.snapshot(), &small());
    }
    assert!(database.collections().is_empty());
}

#[test]
fn the_copy_keeps_the_id_by_default() {
    let mut options = small();
    options.advanced.database_id = Some(7);
    let database = Database::open(Arc::new(MemoryStorage::new()), options.clone()).expect("memory works");
    let stream = backed_up(&database.snapshot());
    let id_of = |options: Options| {
        let (report, target) = restored(&stream, options);
        assert_eq!(report.database_id, 7);
        let copy = Database::open(Arc::new(target), small()).expect("it was restored");
        let report = copy.snapshot().backup(&mut io::sink(), &mut go_on);
        report.expect("a sink works").database_id
    };
    assert_eq!(id_of(small()), 7);
    options.advanced.database_id = Some(8);
    assert_eq!(id_of(options), 8);
}

/// Each commit sets every record to the commit's number, so a mixture of two versions shows.
#[test]
fn writers_continue_and_do_not_show_in_the_backup() {
    let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("memory works");
    let write = |round: u32| {
        let mut transaction = database.begin().expect("it can be written");
        for key in 0..300_u32 {
            let value = noise(round as usize, if key % 50 == 0 { 3000 } else { 8 });
            transaction
                .set("c", &key.to_be_bytes(), &[&round.to_be_bytes()[..], &value].concat())
                .expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
    };
    write(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 2;
            while !stop.load(Ordering::Relaxed) {
                write(round);
                round += 1;
            }
        });
        for _ in 0..20 {
            let snapshot = database.snapshot();
            let (_, target) = restored(&backed_up(&snapshot), small());
            let copy = Database::open(Arc::new(target), small()).expect("it was restored");
            let content = content_of(&copy.snapshot());
            assert!(content == content_of(&snapshot));
            let round = snapshot.version() as u32;
            assert_eq!(content[0].1.len(), 300);
            assert!(content[0].1.iter().all(|(_, value)| value[..4] == round.to_be_bytes()));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_open_transaction_does_not_hold_a_backup_up() {
    let database = varied();
    let transaction = database.begin().expect("it can be written");
    backed_up(&database.snapshot());
    drop(transaction);
}

/// Yields one byte at a time and reports an interruption before each.
struct Trickle<'a>(&'a [u8], bool);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = into.len().min(1);
        self.0.read(&mut into[..len])
    }
}

/// Accepts `left` bytes; records the longest write and whether it was flushed.
struct Gauge {
    left: usize,
    longest: usize,
    is_flushed: bool,
    kind: io::ErrorKind,
}

impl Write for Gauge {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(from.len()).ok_or(self.kind)?;
        self.longest = self.longest.max(from.len());
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.is_flushed = true;
        Ok(())
    }
}

#[test]
fn streams_may_come_in_small_pieces_and_go_in_small_frames() {
    let snapshot = varied().snapshot();
    let mut gauge = Gauge {
        left: usize::MAX,
        longest: 0,
        is_flushed: false,
        kind: io::ErrorKind::Other,
    };
    snapshot.backup(&mut gauge, &mut go_on).expect("it takes everything");
    assert!(gauge.is_flushed && gauge.longest <= (256 << 10) + 16);

    let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    transaction.set("c", b"k", &noise(1, 5000)).expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    let stream = backed_up(&database.snapshot());
    let target = MemoryStorage::new();
    restore(
        &mut Trickle(&stream, false),
        Arc::new(target.clone()),
        small(),
        &mut go_on,
    )
    .expect("small pieces are as good");
    let copy = Database::open(Arc::new(target), small()).expect("it was restored");
    assert!(content_of(&copy.snapshot()) == content_of(&database.snapshot()));
}

#[test]
fn a_sink_that_fails_is_reported() {
    let snapshot = varied().snapshot();
    for (kind, left) in [
        (io::ErrorKind::StorageFull, 0),
        (io::ErrorKind::StorageFull, 1 << 20),
        (io::ErrorKind::Other, 100),
    ] {
        let mut gauge = Gauge {
            left,
            longest: 0,
            is_flushed: false,
            kind,
        };
        let error = snapshot.backup(&mut gauge, &mut go_on).expect_err("it was full");
        let is_full = kind == io::ErrorKind::StorageFull;
        assert_eq!(matches!(error, Error::StorageFull { .. }), is_full, "{error}");
        assert_eq!(matches!(error, Error::Io(_)), !is_full, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_content_comes_back(
        content in prop::collection::btree_map(
            "[a-c]{0,2}",
            prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 0..40),
                prop_oneof![
                    8 => prop::collection::vec(any::<u8>(), 0..100),
                    1 => (0_usize..400_000).prop_map(|len| noise(len, len)),
                ],
                0..40,
            ),
            0..4,
        ),
        codec in "[a-z]{0,3}",
        cache_bytes in (64_usize << 10)..(1 << 20),
    ) {
        let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("memory works");
        for (name, records) in &content {
            let mut transaction = database.begin().expect("it can be written");
            transaction.set_codecs(name, &codec, "v").expect("it is new");
            for (key, value) in records {
                transaction.set(name, key, value).expect("memory works");
            }
            transaction.commit(Durability::None).expect("memory works");
        }
        check_round_trip(&database.snapshot(), &Options { cache_bytes, ..small() });
        let records: BTreeMap<_, _> = content_of(&database.snapshot())
            .into_iter()
            .map(|(info, records)| (info.name, records.into_iter().collect()))
            .collect();
        prop_assert!(records == content);
    }
}

fn empty(target: &dyn Storage) -> bool {
    ["data", "log"]
        .iter()
        .all(|name| !target.exists(name).expect("it can tell"))
}

#[test]
fn pieces_are_the_stream_of_a_backup_whatever_is_written_meanwhile() {
    let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    for (seed, key) in (0..2000_u32).enumerate() {
        let value = noise(seed, 300);
        transaction.set("c", &key.to_be_bytes(), &value).expect("memory works");
    }
    transaction
        .set("d", b"large", &noise(7, 700_000))
        .expect("memory works");
    transaction.set_codecs("empty", "any", "json").expect("it is new");
    transaction.commit(Durability::Strict).expect("memory works");
    let whole = backed_up(&database.snapshot());
    for bytes in [0, 1000, 1 << 18, usize::MAX] {
        let mut pieces = database.snapshot().backup_pieces().expect("memory works");
        let mut stream = Vec::new();
        loop {
            let piece = pieces.next_piece(bytes).expect("memory works");
            if piece.is_empty() {
                break;
            }
            assert!(piece.len() >= bytes.min(1) || stream.len() + piece.len() == whole.len());
            stream.extend(piece);
            let mut transaction = database.begin().expect("it can be written");
            transaction
                .set("c", b"later", &stream.len().to_be_bytes())
                .expect("memory works");
            transaction.delete("c", &5_u32.to_be_bytes()).expect("memory works");
            transaction.commit(Durability::None).expect("memory works");
        }
        let progress = pieces.progress();
        assert_eq!(
            (progress.records, progress.bytes),
            (progress.total_records, stream.len() as u64)
        );
        if bytes == 0 {
            assert!(stream == whole);
        }
        let mut rest = &stream[..];
        restore(&mut rest, Arc::new(MemoryStorage::new()), small(), &mut go_on).expect("it is whole");
    }
}
