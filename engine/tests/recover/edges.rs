//! Cases other than damage: options, cancellation, refusals, failing storages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{Fault, FaultKind, SimStorage};
use mangrove_engine::{
    AdvancedOptions, Completeness, Compression, Database, Durability, Error, Options, RecoverPhase, recover,
};

use super::{UNIT, check, count, grown, recovered, storage_of};
use crate::common::{Flavour, State, options, read_state, without_empty};

/// A value may hold a whole database; its blocks are not mistaken for those of the outer one.
#[test]
fn a_database_inside_a_value_stays_a_value() {
    let (inner, _) = grown(Flavour::Batches, 1, 30);
    for shift in 0..UNIT / 32 {
        let memory = MemoryStorage::new();
        let outer_options = Options {
            compression: Compression::None,
            ..options(Flavour::Batches, 1)
        };
        let database = Database::open(Arc::new(memory.clone()), outer_options).expect("memory works");
        let mut value = vec![0; shift * 32];
        value.extend_from_slice(&inner);
        let mut transaction = database.begin().expect("it can be written");
        transaction.set("files", b"inner", &value).expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
        database.close().expect("memory works");
        let mut data = memory.files()["data"].clone();
        data[..8192].fill(0);
        let (report, state) = recovered(&data, "nested");
        let files = BTreeMap::from([(b"inner".to_vec(), value)]);
        assert!(state == State::from([("files".to_owned(), files)]), "{shift}");
        assert_eq!(report.completeness, Completeness::Reconstructed);
    }
}

#[test]
fn codecs_long_keys_and_larger_units_come_back() {
    for unit_bytes in [512, 4096, 65536] {
        let memory = MemoryStorage::new();
        let large = Options {
            advanced: AdvancedOptions {
                unit_bytes,
                node_bytes: 65536,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        let database = Database::open(Arc::new(memory.clone()), large).expect("memory works");
        let mut transaction = database.begin().expect("it can be written");
        transaction.set_codecs("empty", "any", "json").expect("it is new");
        transaction
            .set_codecs("full", "string", "structured")
            .expect("it is new");
        let key = vec![7; database.max_key_bytes()];
        transaction.set("full", &key, &vec![1; 3 << 20]).expect("memory works");
        for number in 0..5000_u32 {
            transaction
                .set("full", &number.to_be_bytes(), &[2; 40])
                .expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
        let infos = database.collections();
        database.close().expect("memory works");
        let mut data = memory.files()["data"].clone();
        data[..8192].fill(0);
        let (source, target) = (storage_of(&data), MemoryStorage::new());
        let report = recover(
            Arc::new(source),
            Arc::new(target.clone()),
            Options::default(),
            &mut |_| ControlFlow::Continue(()),
        );
        assert_eq!(
            report.expect("it is readable").completeness,
            Completeness::Reconstructed,
            "{unit_bytes}"
        );
        let database = Database::open(Arc::new(target), Options::default()).expect("it was made just now");
        assert_eq!(database.collections(), infos);
        let full = database.snapshot().collection("full").expect("it came back");
        assert_eq!(full.get(&key).expect("it is intact"), Some(vec![1; 3 << 20]));
    }
}

#[test]
fn cancelling_at_any_time_leaves_an_empty_target() {
    let (mut data, _) = grown(Flavour::Batches, 3, 40);
    data[..4096].fill(9);
    let mut phases = BTreeSet::new();
    for stop_at in 0.. {
        let target = MemoryStorage::new();
        let mut calls = 0;
        let mut progress = |progress: mangrove_engine::RecoverProgress| {
            phases.insert(format!("{:?}", progress.phase));
            assert!(progress.scanned_bytes <= progress.total_bytes);
            calls += 1;
            if calls > stop_at {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let report = recover(
            Arc::new(storage_of(&data)),
            Arc::new(target.clone()),
            Options::default(),
            &mut progress,
        );
        let report = report.expect("damage is no error");
        if report.completeness != Completeness::Cancelled {
            break;
        }
        assert!(target.files().is_empty());
    }
    let all = [RecoverPhase::Scanning, RecoverPhase::Copying, RecoverPhase::Verifying];
    assert_eq!(phases, all.iter().map(|phase| format!("{phase:?}")).collect());
}

#[test]
fn targets_with_content_and_sources_without_are_refused() {
    let (data, _) = grown(Flavour::Tiny, 3, 5);
    let attempt = |source: &MemoryStorage, target: &MemoryStorage| {
        let unlimited = &mut |_| ControlFlow::Continue(());
        recover(
            Arc::new(source.clone()),
            Arc::new(target.clone()),
            Options::default(),
            unlimited,
        )
        .map(|_| ())
    };
    let full = storage_of(&data);
    for target in [full.clone(), storage_of(b"something else")] {
        let before = target.files();
        assert!(matches!(
            attempt(&storage_of(&data), &target),
            Err(Error::AlreadyExists { .. })
        ));
        assert!(target.files() == before);
    }
    assert!(matches!(attempt(&full, &full), Err(Error::AlreadyExists { .. })));
    let empty = MemoryStorage::new();
    assert!(matches!(
        attempt(&empty, &MemoryStorage::new()),
        Err(Error::NotFound { .. })
    ));
    for foreign in [&b"hello".repeat(9999)[..], b"", &vec![0; 100_000], b"MANGROVE"] {
        let target = MemoryStorage::new();
        assert!(matches!(
            attempt(&storage_of(foreign), &target),
            Err(Error::NotADatabase { .. })
        ));
        assert!(target.files().is_empty());
    }
    let open = full.open("data", false).expect("it is there");
    assert!(matches!(
        attempt(&full, &MemoryStorage::new()),
        Err(Error::Locked { .. })
    ));
    drop(open);
    attempt(&full, &MemoryStorage::new()).expect("it is intact");
}

/// Writing the new database fails at any point: the error surfaces, and the source is unchanged.
#[test]
fn a_target_that_fails_is_an_error() {
    let (data, _) = grown(Flavour::Batches, 5, 20);
    for at in 0.. {
        let (source, target) = (storage_of(&data), SimStorage::new());
        target.set_fault(Some(Fault::from(at, FaultKind::StorageFull)));
        let unlimited = &mut |_| ControlFlow::Continue(());
        let result = recover(
            Arc::new(source.clone()),
            Arc::new(target.clone()),
            Options::default(),
            unlimited,
        );
        assert!(source.files()["data"] == data);
        if let Ok(report) = result {
            assert_eq!(report.completeness, Completeness::Exact);
            break;
        }
    }
}

/// A read that fails once costs no node: the scan finds what references do not reach.
#[test]
fn reads_that_fail_once_cost_nothing() {
    let (data, states) = grown(Flavour::Batches, 6, 20);
    let expected = without_empty(states.last().expect("there is one"));
    let files = BTreeMap::from([("data".to_owned(), data)]);
    let mut failed = 0;
    for at in 0.. {
        let (source, target) = (SimStorage::from_files(files.clone()), MemoryStorage::new());
        source.set_read_fault(Some(Fault::once(at, FaultKind::Io)));
        let unlimited = &mut |_| ControlFlow::Continue(());
        let report = recover(
            Arc::new(source.clone()),
            Arc::new(target.clone()),
            Options::default(),
            unlimited,
        );
        let report = report.expect("a read that fails is damage");
        let database = Database::open(Arc::new(target), Options::default()).expect("it was made just now");
        let state = read_state(&database.snapshot()).expect("it is intact");
        check(&report, &state, &states, &format!("read {at}"));
        // Out-of-line values are read only once; all nodes are found again.
        let lost = count(&expected) - count(&state);
        assert!(lost == report.lost_record_count && lost <= 1, "read {at}: {report:?}");
        if source.counters().reads <= at {
            break;
        }
        failed += 1;
    }
    assert!(failed > 20);
}
