//! Compaction concurrent with readers and writers.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{CompactOptions, Database, Direction, Durability, KeyRange};

use super::{compact, content, fill_and_thin, fine, go_on, open, small, used_bytes, value};
use crate::common::read_state;

/// Readers see whole commits and writers commit while blocks move under them.
#[test]
fn readers_and_writers_continue() {
    const KEYS: u64 = 64;
    let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("it opens");
    fill_and_thin(&database, 3000, 2500);
    let still = content(&database);
    let stop = AtomicBool::new(false);
    let (commits, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    let write = |number: u64| {
        let mut transaction = database.begin().expect("it can be written");
        for key in 0..KEYS {
            let bytes = value(number, 8 + key * 20);
            transaction
                .set("busy", &key.to_be_bytes(), &bytes)
                .expect("there is room");
        }
        transaction
            .commit([Durability::Relaxed, Durability::None][number as usize % 2])
            .expect("there is room");
    };
    write(0);
    let mut shrunk = false;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                write(number);
                commits.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = database.snapshot();
                    let busy = snapshot.collection("busy").expect("it was written");
                    let first = busy
                        .get(&0_u64.to_be_bytes())
                        .expect("it can be read")
                        .expect("it is there");
                    let number = u64::from(first[0]);
                    for key in 0..KEYS {
                        let bytes = busy.get(&key.to_be_bytes()).expect("it can be read");
                        assert_eq!(bytes, Some(value(number, 8 + key * 20)));
                    }
                    let a = snapshot.collection("a").expect("it was written");
                    let mut cursor = a.cursor(KeyRange::all(), Direction::Forward);
                    let mut records = still["a"].iter();
                    while cursor.advance().expect("it can be read") {
                        let (key, bytes) = records.next().expect("nothing was added");
                        assert!(cursor.key() == key && cursor.value().expect("it can be read") == *bytes);
                    }
                    assert!(records.next().is_none());
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..50 {
            let report = database.compact(fine(), &mut go_on).expect("nothing fails");
            shrunk |= report.file_bytes_after < report.file_bytes_before / 2;
            let enough = commits.load(Ordering::Relaxed) > 50 && reads.load(Ordering::Relaxed) > 20;
            if shrunk && enough {
                break;
            }
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let found = content(&database);
    assert!(found["a"] == still["a"] && found["b"] == still["b"]);
    assert!(database.verify().expect("it can be read").is_ok());
    database.checkpoint().expect("there is room");
    let report = compact(&database, fine());
    let most = used_bytes(&database) * 5 / 4 + fine().threshold_bytes;
    assert!(report.file_bytes_after <= most, "{report:?}");
}

/// A snapshot that begins between two slices reads the places that the next slices leave.
#[test]
fn snapshots_between_slices_stay_as_they_are() {
    let database = open(&SimStorage::new());
    fill_and_thin(&database, 1500, 3000);
    database.checkpoint().expect("there is room");
    let expected = content(&database);
    let mut snapshots = Vec::new();
    let slices = CompactOptions {
        slice_bytes: 4096,
        ..fine()
    };
    let report = database.compact(slices, &mut |_| {
        if snapshots.len() < 3 {
            snapshots.push(database.snapshot());
        }
        ControlFlow::Continue(())
    });
    let report = report.expect("nothing fails");
    assert!(report.slices > 10 && report.held_bytes > 0, "{report:?}");
    // Commits take what is free.
    for number in 0..200_u64 {
        database
            .set("new", &number.to_be_bytes(), &value(number, 3000), Durability::Relaxed)
            .expect("there is room");
    }
    database.checkpoint().expect("there is room");
    for snapshot in &snapshots {
        assert!(read_state(snapshot).expect("it can be read") == expected);
    }
}
