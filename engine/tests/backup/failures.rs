//! Occupied targets, failing targets, cancellations, power cuts.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, Keeps, SimStorage};
use mangrove_engine::{AdvancedOptions, BackupOutcome, Database, Durability, Error, Options, Snapshot, restore};

use super::{backed_up, content_of, empty, go_on, noise, small, varied};

/// Returns a snapshot with more records than the cache holds.
fn grown() -> Snapshot {
    let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    for key in 0..2000_u32 {
        let value = noise(key as usize, if key % 400 == 0 { 2000 } else { 60 });
        transaction.set("c", &key.to_be_bytes(), &value).expect("memory works");
    }
    transaction
        .set("d", b"long", &noise(0, (1 << 20) + 5000))
        .expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    database.snapshot()
}

fn existing() -> Options {
    Options {
        create: false,
        ..small()
    }
}

#[test]
fn an_existing_target_is_left_alone() {
    let stream = backed_up(&grown());
    let taken = |target: &MemoryStorage| {
        let before = target.files();
        let mut called = false;
        let result = restore(&mut &stream[..], Arc::new(target.clone()), small(), &mut |_| {
            called = true;
            ControlFlow::Continue(())
        });
        assert!(target.files() == before && !called);
        result.expect_err("it is taken")
    };
    let target = MemoryStorage::new();
    let database = Database::open(Arc::new(target.clone()), small()).expect("memory works");
    assert!(matches!(taken(&target), Error::Locked { .. }));
    database.close().expect("memory works");
    assert!(matches!(taken(&target), Error::AlreadyExists { .. }));
    for name in ["data", "log"] {
        let target = MemoryStorage::new();
        let file = target.open(name, true).expect("memory works");
        file.write_at(0, b"mine").expect("memory works");
        drop(file);
        assert!(matches!(taken(&target), Error::AlreadyExists { .. }));
    }
}

#[test]
fn empty_files_in_the_target_are_accepted() {
    let snapshot = grown();
    let target = MemoryStorage::new();
    target.open("data", true).expect("memory works");
    target.open("log", true).expect("memory works");
    restore(
        &mut &backed_up(&snapshot)[..],
        Arc::new(target.clone()),
        small(),
        &mut go_on,
    )
    .expect("nothing is in them");
    let copy = Database::open(Arc::new(target), existing()).expect("it was restored");
    assert!(content_of(&copy.snapshot()) == content_of(&snapshot));
}

#[test]
fn options_out_of_range_are_reported() {
    let stream = backed_up(&grown());
    let target = MemoryStorage::new();
    let options = Options {
        advanced: AdvancedOptions {
            unit_bytes: 3,
            ..small().advanced
        },
        ..small()
    };
    let result = restore(&mut &stream[..], Arc::new(target.clone()), options, &mut go_on);
    assert!(matches!(result, Err(Error::InvalidArgument { .. })));
    assert!(empty(&target));
}

#[test]
fn both_ways_can_be_cancelled_at_every_report() {
    let snapshot = varied().snapshot();
    let stream = backed_up(&snapshot);
    let total = snapshot.collections().iter().map(|info| info.count).sum::<u64>();
    for is_restore in [false, true] {
        let mut calls = 0;
        for stop_at in 0.. {
            let (mut call, mut last) = (0, (0, 0));
            let mut progress = |progress: mangrove_engine::BackupProgress| {
                assert_eq!(progress.total_records, total);
                assert!((progress.records, progress.bytes) >= last, "{progress:?}");
                assert!(progress.records <= total && progress.bytes <= stream.len() as u64);
                last = (progress.records, progress.bytes);
                call += 1;
                if call - 1 == stop_at {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let outcome = if is_restore {
                let target = MemoryStorage::new();
                let report = restore(
                    &mut &stream[..],
                    Arc::new(target.clone()),
                    Options::default(),
                    &mut progress,
                );
                let outcome = report.expect("memory works").outcome;
                assert_eq!(outcome == BackupOutcome::Cancelled, empty(&target));
                outcome
            } else {
                let mut partial = Vec::new();
                let report = snapshot.backup(&mut partial, &mut progress).expect("memory works");
                if report.outcome == BackupOutcome::Cancelled {
                    let target = Arc::new(MemoryStorage::new());
                    assert!(restore(&mut &partial[..], target, Options::default(), &mut go_on).is_err());
                } else {
                    assert!(partial == stream);
                }
                report.outcome
            };
            if outcome == BackupOutcome::Complete {
                assert_eq!(last, (total, stream.len() as u64));
                break;
            }
            assert_eq!(call, stop_at + 1, "nothing is reported after a cancellation");
            calls += 1;
        }
        // The data exceeds thirteen megabytes.
        assert!(calls > 13, "{calls}");
    }
}

/// Restores with a fault; returns whether that worked after all. If not, the target must be empty.
fn restore_with_fault(stream: &[u8], snapshot: &Snapshot, set: impl FnOnce(&SimStorage), context: &str) -> bool {
    let storage = SimStorage::new();
    set(&storage);
    let result = restore(&mut &stream[..], Arc::new(storage.clone()), small(), &mut go_on);
    storage.set_fault(None);
    storage.set_read_fault(None);
    match result {
        Ok(_) => {
            let copy = Database::open(Arc::new(storage), existing()).expect(context);
            assert!(content_of(&copy.snapshot()) == content_of(snapshot), "{context}");
            true
        }
        Err(error) => {
            assert!(
                matches!(error, Error::Io(_) | Error::StorageFull { .. } | Error::Poisoned { .. }),
                "{context}: {error}"
            );
            assert!(empty(&storage), "{context}");
            false
        }
    }
}

#[test]
fn every_operation_of_the_target_may_fail() {
    let snapshot = grown();
    let stream = backed_up(&snapshot);
    let whole = SimStorage::new();
    restore(&mut &stream[..], Arc::new(whole.clone()), small(), &mut go_on).expect("nothing fails");
    let counters = whole.counters();
    assert!(counters.operations > 25 && counters.reads > 50, "{counters:?}");
    let mut unharmed = 0;
    for at in 0..counters.operations {
        for fault in [Fault::once(at, FaultKind::Io), Fault::from(at, FaultKind::StorageFull)] {
            let fault = Fault {
                keeps: if at % 2 == 0 { Keeps::Half } else { Keeps::Nothing },
                ..fault
            };
            let set = |storage: &SimStorage| storage.set_fault(Some(fault));
            unharmed += u64::from(restore_with_fault(&stream, &snapshot, set, &format!("{fault:?}")));
        }
    }
    for at in 0..counters.reads {
        let fault = Fault::once(at, FaultKind::Io);
        let set = |storage: &SimStorage| storage.set_read_fault(Some(fault));
        unharmed += u64::from(restore_with_fault(&stream, &snapshot, set, &format!("read {at}")));
    }
    // A fault is harmless where it only prevents truncating the file's free tail.
    assert!(unharmed < 8, "{unharmed}");
}

#[test]
fn a_power_cut_leaves_everything_or_nothing_that_opens() {
    let snapshot = grown();
    let stream = backed_up(&snapshot);
    let expected = content_of(&snapshot);
    let whole = SimStorage::new();
    restore(&mut &stream[..], Arc::new(whole.clone()), small(), &mut go_on).expect("nothing fails");
    let (mut complete, mut nothing) = (0, 0);
    for at in 0..=whole.counters().operations {
        for seed in 0..4 {
            for policy in CrashPolicy::ALL {
                let context = format!("{policy:?} at {at}, {seed}");
                let storage = SimStorage::new();
                storage.cut_at(at);
                // The process dies with the power, so it removes nothing.
                let kept = Keeping(storage.clone());
                let done = restore(&mut &stream[..], Arc::new(kept), small(), &mut go_on).is_ok();
                let left = SimStorage::from_files(storage.crash(policy, seed));
                match Database::open(Arc::new(left), existing()) {
                    Ok(copy) => {
                        complete += 1;
                        assert_eq!(copy.version(), snapshot.version(), "{context}");
                        assert!(content_of(&copy.snapshot()) == expected, "{context}");
                    }
                    Err(_) => {
                        nothing += 1;
                        assert!(!done, "{context}");
                    }
                }
            }
        }
    }
    assert!(complete > 24 && nothing > 600, "{complete} {nothing}");
}

/// A storage that ignores removals.
struct Keeping(SimStorage);

impl Storage for Keeping {
    fn open(
        &self,
        name: &str,
        create: bool,
    ) -> mangrove_engine::Result<Arc<dyn mangrove_engine::storage::StorageFile>> {
        self.0.open(name, create)
    }

    fn exists(&self, name: &str) -> mangrove_engine::Result<bool> {
        self.0.exists(name)
    }

    fn remove(&self, _: &str) -> mangrove_engine::Result<()> {
        Ok(())
    }
}

/// Fails once it has returned all its bytes.
struct Broken<'a>(&'a [u8]);

impl io::Read for Broken<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::Error::other("the line is dead")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_source_that_fails_is_reported() {
    let stream = backed_up(&grown());
    for len in [0, 10, 64, 1000, stream.len() - 1, stream.len()] {
        let target = MemoryStorage::new();
        let result = restore(
            &mut Broken(&stream[..len]),
            Arc::new(target.clone()),
            small(),
            &mut go_on,
        );
        assert!(
            matches!(&result, Err(Error::Io(failure)) if failure.source.contains("dead")),
            "{result:?}"
        );
        assert!(empty(&target));
    }
}
