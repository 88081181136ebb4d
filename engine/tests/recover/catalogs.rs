//! Lost catalogs: names, and collections that were dropped or emptied.

use std::collections::BTreeMap;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{Completeness, Database, Durability, Error, ExclusiveTransaction, KeyRange};

use super::{Block, blocks, generation, is_catalog, recovered};
use crate::common::{Flavour, State, options};

/// Without a catalog, collections lose their names but keep their records.
#[test]
fn collections_without_a_name_keep_their_records() {
    let memory = MemoryStorage::new();
    let database = Database::open(Arc::new(memory.clone()), options(Flavour::Batches, 1)).expect("memory works");
    let mut expected = BTreeMap::new();
    for round in 0..3_u32 {
        let mut transaction = database.begin().expect("it can be written");
        for number in 0..200_u32 {
            let (key, value) = ((number * 7 % 200).to_be_bytes(), (number + round).to_be_bytes());
            transaction.set("lost", &key, &value).expect("memory works");
            expected.insert(key.to_vec(), value.to_vec());
        }
        for number in 0..20_u32 {
            let key = (number * 10 + round).to_be_bytes();
            transaction.delete("lost", &key).expect("memory works");
            expected.remove(key.as_slice());
        }
        transaction.commit(Durability::Strict).expect("memory works");
        database.checkpoint().expect("memory works");
    }
    database.close().expect("memory works");
    let mut data = memory.files()["data"].clone();
    for block in blocks(&data) {
        if is_catalog(&data, &block) {
            data[block.start..block.start + block.len].fill(0);
        }
    }
    for with_superblock in [true, false] {
        let (report, state) = recovered(&data, "no catalog");
        assert_eq!(
            state,
            State::from([("recovered-1".to_owned(), expected.clone())]),
            "{with_superblock}"
        );
        assert!(!report.collections[0].is_named);
        assert_eq!(report.completeness, Completeness::Salvage);
        data[..8192].fill(0xFF);
    }
}

/// Returns the nodes of the newest checkpoint that wrote any.
fn newest<'a>(data: &[u8], list: &'a [Block]) -> impl Iterator<Item = &'a Block> {
    let is_node = |block: &&Block| data[block.start + 4] < 3;
    let newest = list.iter().filter(is_node).map(|block| generation(data, block)).max();
    let nodes: Vec<&Block> = list
        .iter()
        .filter(is_node)
        .filter(|block| Some(generation(data, block)) == newest)
        .collect();
    nodes.into_iter()
}

type Step = fn(&mut ExclusiveTransaction<'_>) -> Result<(), Error>;

/// Runs steps, each followed by a checkpoint; returns the data file.
fn steps(steps: &[Step]) -> Vec<u8> {
    let memory = MemoryStorage::new();
    let database = Database::open(Arc::new(memory.clone()), options(Flavour::Batches, 1)).expect("memory works");
    for step in steps {
        let mut transaction = database.begin().expect("it can be written");
        step(&mut transaction).expect("memory works");
        transaction.commit(Durability::Strict).expect("memory works");
        database.checkpoint().expect("memory works");
    }
    database.close().expect("memory works");
    memory.files()["data"].clone()
}

/// A dropped collection stays away when the newest catalog is lost. The catalog before it no longer
/// lists that collection.
#[test]
fn dropped_collections_stay_away() {
    let mut data = steps(&[
        |transaction| transaction.set("kept", b"key", b"1").map(drop),
        |transaction| transaction.set("gone", b"key", b"2").map(drop),
        |transaction| transaction.drop_collection("gone").map(drop),
        |transaction| transaction.set("kept", b"key", b"3").map(drop),
    ]);
    let list = blocks(&data);
    let catalog = newest(&data, &list).find(|block| is_catalog(&data, block) && data[block.start + 4] == 1);
    let catalog = catalog.expect("each checkpoint writes one").start;
    data[catalog + 40] ^= 1;
    for with_superblock in [true, false] {
        let (report, state) = recovered(&data, "dropped");
        assert_eq!(report.collections.len(), 1);
        let kept = BTreeMap::from([(b"key".to_vec(), b"3".to_vec())]);
        assert_eq!(state, State::from([("kept".to_owned(), kept)]), "{with_superblock}");
        data[..8192].fill(0);
    }
}

/// Part of the catalog is lost, and with it a name. Collections that the rest once listed and no
/// longer lists were dropped.
#[test]
fn collections_dropped_in_the_rest_of_the_catalog_stay_away() {
    let mut data = steps(&[
        |transaction| ('a'..='z').try_for_each(|name| transaction.set(&name.to_string(), b"key", b"1").map(drop)),
        |transaction| transaction.set("gone", b"key", b"2").map(drop),
        |transaction| transaction.drop_collection("gone").map(drop),
    ]);
    for block in blocks(&data) {
        let bytes = &data[block.start..block.start + block.len];
        // The entry of "z": its name, then the length of the rest.
        if is_catalog(&data, &block) && bytes.windows(3).any(|entry| entry == b"z\xE0\x03") {
            data[block.start + 30] ^= 1;
        }
    }
    data[..8192].fill(0);
    let (report, state) = recovered(&data, "part of the catalog");
    let names: Vec<&str> = report
        .collections
        .iter()
        .filter(|found| found.is_named)
        .map(|found| found.name.as_str())
        .collect();
    assert!(
        names.len() < 26 && names.contains(&"a") && !names.contains(&"gone"),
        "{names:?}"
    );
    assert_eq!(state.len(), 26);
}

fn fill(transaction: &mut ExclusiveTransaction<'_>, value: &[u8]) -> Result<(), Error> {
    (0..100_u8).try_for_each(|key| transaction.set("c", &[key], value).map(drop))
}

/// A collection stays empty if an older catalog shows it as empty. Records from before that catalog
/// do not come back, whatever else is lost.
#[test]
fn emptied_collections_stay_empty() {
    let mut data = steps(&[
        |transaction| fill(transaction, b"old"),
        |transaction| transaction.clear("c", KeyRange::all()).map(drop),
        |transaction| fill(transaction, b"new"),
    ]);
    let list = blocks(&data);
    let lost: Vec<usize> = newest(&data, &list)
        .filter(|block| is_catalog(&data, block) || data[block.start + 4] == 2)
        .map(|block| block.start)
        .collect();
    let leaf = newest(&data, &list).find(|block| !is_catalog(&data, block) && data[block.start + 4] == 1);
    let leaf = leaf.expect("there are many").start;
    for block in lost.into_iter().chain([leaf]) {
        data[block + 40] ^= 1;
    }
    for with_superblock in [true, false] {
        let (report, state) = recovered(&data, "emptied");
        assert!(state["c"].values().all(|value| value == b"new"), "{with_superblock}");
        assert!((50..100).contains(&state["c"].len()));
        assert_eq!(report.completeness, Completeness::Salvage);
        data[..8192].fill(0);
    }
}
