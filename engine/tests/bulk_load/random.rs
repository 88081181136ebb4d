//! Loads mixed with other changes, against a sorted map.

use mangrove_engine::testing::sim::SimStorage;
use mangrove_engine::{BulkLoad, Database, Duplicates, Durability};
use proptest::prelude::*;

use super::{Record, Records, check, open};

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0_u16..3000).prop_map(|number| number.to_be_bytes().to_vec()),
        prop::collection::vec(0_u8..3, 0..32),
        (0_u8..3, 0_usize..24, any::<u8>()).prop_map(|(group, zeros, last)| {
            let mut key = vec![group];
            key.resize(1 + zeros, 0);
            key.push(last);
            key
        }),
    ]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![20 => 0_usize..40, 1 => 0_usize..1200]
}

#[derive(Clone, Debug)]
enum Step {
    Load {
        records: Vec<(Vec<u8>, usize)>,
        sorted: bool,
        replace: bool,
        first: bool,
        memory: usize,
        rolled_back: bool,
    },
    Set(Vec<(Vec<u8>, usize)>),
    Delete(Vec<Vec<u8>>),
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    let records = |most| prop::collection::vec((key(), len()), 0..most);
    prop_oneof![
        3 => (records(600), any::<bool>(), prop::bool::weighted(0.2), any::<bool>(), 4000_usize..20_000, prop::bool::weighted(0.1))
            .prop_map(|(records, sorted, replace, first, memory, rolled_back)| Step::Load { records, sorted, replace, first, memory, rolled_back }),
        1 => records(60).prop_map(Step::Set),
        1 => prop::collection::vec(key(), 0..200).prop_map(Step::Delete),
        1 => Just(Step::Checkpoint),
    ]
}

fn apply(database: &Database, model: &mut Records, step: Step) {
    let mut transaction = database.begin().expect("it opens");
    match step {
        Step::Load {
            mut records,
            sorted,
            replace,
            first,
            memory,
            rolled_back,
        } => {
            if sorted {
                records.sort_by(|a, b| a.0.cmp(&b.0));
            }
            let records: Vec<Record> = records
                .into_iter()
                .map(|(key, len)| (key, vec![len as u8; len]))
                .collect();
            let options = BulkLoad {
                replace,
                duplicates: if first { Duplicates::First } else { Duplicates::Last },
                memory_bytes: Some(memory),
                progress: None,
            };
            let mut new = Records::new();
            for (key, value) in &records {
                if !(first && new.contains_key(key)) {
                    new.insert(key.clone(), value.clone());
                }
            }
            let report = transaction
                .bulk_load("c", records.into_iter().map(Ok), options)
                .expect("the storage works");
            assert_eq!(report.written, new.len() as u64);
            assert_eq!(report.written + report.duplicates, report.records);
            if rolled_back {
                return;
            }
            if replace {
                model.clear();
            }
            assert_eq!(
                report.replaced,
                new.keys().filter(|key| model.contains_key(*key)).count() as u64
            );
            model.extend(new);
        }
        Step::Set(records) => {
            for (key, len) in records {
                transaction.set("c", &key, &vec![1; len]).expect("the storage works");
                model.insert(key, vec![1; len]);
            }
        }
        Step::Delete(keys) => {
            for key in keys {
                let existed = transaction.delete("c", &key).expect("the storage works");
                assert_eq!(existed, model.remove(&key).is_some());
            }
        }
        Step::Checkpoint => {
            drop(transaction);
            database.checkpoint().expect("the storage works");
            return;
        }
    }
    transaction.commit(Durability::Relaxed).expect("the storage works");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn loads_and_other_changes_match_a_map(steps in prop::collection::vec(step(), 1..8)) {
        let storage = SimStorage::new();
        let mut database = open(&storage, 256);
        let mut model = Records::new();
        for step in steps {
            apply(&database, &mut model, step);
            check(&database, &model);
        }
        database.close().expect("the storage works");
        database = open(&storage, 256);
        check(&database, &model);
    }
}
