//! A power cut or a full disk at each operation.

use std::sync::Arc;

use mangrove_engine::testing::sim::{CrashPolicy, Fault, FaultKind, SimOperation, SimStorage};
use mangrove_engine::{BulkLoad, Database, Duplicates, Error};

use super::{Record, Records, check, content, load, open, options, record, shuffled, small, verify};

fn faulty_workload(database: &Database) -> Result<(), Error> {
    let base: Vec<Record> = (0..150).map(|number| record(number * 3)).collect();
    load(database, &base, small())?;
    let mut next = base;
    next.extend((0..400).map(|number| {
        (
            record(number * 3 + 1).0,
            vec![number as u8; if number % 40 == 0 { 900 } else { 20 }],
        )
    }));
    let options = BulkLoad {
        memory_bytes: Some(4096),
        duplicates: Duplicates::Last,
        ..BulkLoad::default()
    };
    load(database, &shuffled(next, 4), options)?;
    let append: Vec<Record> = (2000..2300).map(record).collect();
    let options = BulkLoad {
        memory_bytes: Some(4096),
        ..BulkLoad::default()
    };
    load(database, &append, options)?;
    Ok(())
}

/// The state of each version.
fn faulty_states() -> [Records; 4] {
    let database = open(&SimStorage::new(), 256);
    let base: Records = (0..150).map(|number| record(number * 3)).collect();
    faulty_workload(&database).expect("the storage works");
    let end = content(&database);
    let mut middle = end.clone();
    middle.retain(|key, _| *key < record(2000).0);
    assert_eq!((middle.len(), end.len()), (550, 850));
    [Records::new(), base, middle, end]
}

#[test]
fn a_crash_anywhere_leaves_all_or_nothing() {
    let states = faulty_states();
    let whole = SimStorage::new();
    faulty_workload(&open(&whole, 256)).expect("the storage works");
    let operations = whole.counters().operations;
    for cut in 0..operations {
        let storage = SimStorage::new();
        storage.cut_at(cut);
        let mut acknowledged = 0;
        if let Ok(database) = Database::open(Arc::new(storage.clone()), options(256)) {
            let _ = faulty_workload(&database);
            acknowledged = database.stats().durable_version;
        }
        for policy in CrashPolicy::ALL {
            let image = SimStorage::from_files(storage.crash(policy, cut));
            let database = open(&image, 256);
            verify(&database);
            let version = database.version();
            assert!(version >= acknowledged, "cut {cut} {policy:?}");
            assert!(content(&database) == states[version as usize], "cut {cut} {policy:?}");
        }
    }
}

#[test]
fn a_failure_anywhere_leaves_no_leak() {
    let states = faulty_states();
    let whole = SimStorage::new();
    faulty_workload(&open(&whole, 256)).expect("the storage works");
    let mut undone = 0;
    for at in 3..whole.counters().operations {
        let storage = SimStorage::new();
        let database = open(&storage, 256);
        storage.set_fault(Some(Fault::once(at, FaultKind::StorageFull)));
        let result = faulty_workload(&database);
        storage.set_fault(None);
        let version = database.version();
        assert!(result.is_ok() || version < 3, "operation {at}");
        // After a failed flush or superblock write the disk may refer to anything that was written (I10).
        if matches!(database.begin(), Err(Error::Poisoned { .. })) {
            let failed = storage.first_failed();
            assert!(
                matches!(failed, Some(SimOperation::Flush | SimOperation::Write(0..8192))),
                "{failed:?}"
            );
            assert!(content(&database) == states[version as usize]);
            continue;
        }
        check(&database, &states[version as usize]);
        if result.is_err() {
            load(&database, &[(vec![7; 9], vec![1])], small())
                .unwrap_or_else(|error| panic!("operation {at}: {error}"));
            verify(&database);
            undone += 1;
        }
    }
    assert!(undone > 50, "{undone} loads were undone");
}
