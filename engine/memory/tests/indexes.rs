//! Tests both indexes against the standard library's map, with clones that must not change.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use proptest::test_runner::Config;

use mangrove_engine::Direction;
use mangrove_memory::CritBit;
use mangrove_memory::index::{BTree, OrderedIndex};

type Model = BTreeMap<Vec<u8>, u32>;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, u32),
    /// Inserts consecutive keys in this order, from this number on.
    Run(Direction, u16, u16),
    Remove(Vec<u8>),
    /// Removes this many entries, starting with the one nearest to the key.
    RemoveFrom(Vec<u8>, Direction, u16),
    Clear,
    Keep,
    /// Goes back to a clone made earlier.
    Restore(usize),
    Look(Vec<u8>, Bound<Vec<u8>>, Bound<Vec<u8>>),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 0..6),
        prop::collection::vec(any::<u8>(), 0..40),
        // Prefixes of one another.
        (0_usize..60).prop_map(|len| vec![0; len]),
        (0_u16..600).prop_map(numbered),
    ]
}

/// Keys with a common prefix, some short enough to be stored in place.
fn numbered(number: u16) -> Vec<u8> {
    let prefix: &[u8] = if number.is_multiple_of(3) {
        b"a common prefix of the "
    } else {
        b"common/"
    };
    [prefix, &number.to_be_bytes()].concat()
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Forward), Just(Direction::Reverse)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => (direction(), 0_u16..500, 1_u16..150).prop_map(|(direction, start, len)| Step::Run(direction, start, len)),
        8 => key().prop_map(Step::Remove),
        3 => (key(), direction(), 1_u16..150).prop_map(|(key, direction, len)| Step::RemoveFrom(key, direction, len)),
        1 => Just(Step::Clear),
        3 => Just(Step::Keep),
        2 => any::<usize>().prop_map(Step::Restore),
        10 => (key(), bound(), bound()).prop_map(|(key, lower, upper)| Step::Look(key, lower, upper)),
    ]
}

fn owned((key, value): (&[u8], &u32)) -> (Vec<u8>, u32) {
    (key.to_vec(), *value)
}

fn entries<I: OrderedIndex<u32>>(index: &I, direction: Direction) -> Vec<(Vec<u8>, u32)> {
    index.iter(direction).map(owned).collect()
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Entries of the model between two bounds, which may exclude each other.
fn between(model: &Model, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Vec<(Vec<u8>, u32)> {
    let entries = model.iter().filter(|(key, _)| {
        (match lower {
            Bound::Included(lower) => key.as_slice() >= lower,
            Bound::Excluded(lower) => key.as_slice() > lower,
            Bound::Unbounded => true,
        }) && (match upper {
            Bound::Included(upper) => key.as_slice() <= upper,
            Bound::Excluded(upper) => key.as_slice() < upper,
            Bound::Unbounded => true,
        })
    });
    entries.map(|(key, value)| (key.clone(), *value)).collect()
}

fn check_range<I: OrderedIndex<u32>>(index: &I, model: &Model, lower: Bound<&[u8]>, upper: Bound<&[u8]>) {
    let mut expected = between(model, lower, upper);
    let forward = index.range(lower, upper, Direction::Forward);
    assert_eq!(forward.len(), expected.len());
    assert_eq!(forward.map(owned).collect::<Vec<_>>(), expected);
    expected.reverse();
    let reverse = index.range(lower, upper, Direction::Reverse);
    assert_eq!(reverse.len(), expected.len());
    assert_eq!(reverse.map(owned).collect::<Vec<_>>(), expected);
}

fn check_seek<I: OrderedIndex<u32>>(index: &I, model: &Model, bound: Bound<&[u8]>) {
    let first = between(model, bound, Bound::Unbounded).first().cloned();
    assert_eq!(index.seek(bound, Direction::Forward).map(owned), first);
    let last = between(model, Bound::Unbounded, bound).last().cloned();
    assert_eq!(index.seek(bound, Direction::Reverse).map(owned), last);
}

fn check_key<I: OrderedIndex<u32>>(index: &I, model: &Model, key: &[u8]) {
    assert_eq!(index.get(key), model.get(key));
    let rank = between(model, Bound::Unbounded, Bound::Excluded(key)).len();
    assert_eq!(index.rank(key), rank);
    for position in [rank, rank + 1, model.len()] {
        let expected = model.iter().nth(position).map(|(key, value)| (key.clone(), *value));
        assert_eq!(index.at(position).map(owned), expected);
    }
    check_seek(index, model, Bound::Included(key));
    check_seek(index, model, Bound::Excluded(key));
}

fn check_all<I: OrderedIndex<u32>>(index: &I, model: &Model) {
    assert_eq!((index.len(), index.is_empty()), (model.len(), model.is_empty()));
    check_range(index, model, Bound::Unbounded, Bound::Unbounded);
    check_seek(index, model, Bound::Unbounded);
}

fn run<I: OrderedIndex<u32>>(steps: Vec<Step>) {
    let (mut index, mut model) = (I::default(), Model::new());
    let mut kept = vec![(index.clone(), model.clone())];
    for step in steps {
        match step {
            Step::Insert(key, value) => assert_eq!(index.insert(&key, value), model.insert(key, value)),
            Step::Run(direction, start, len) => {
                let mut numbers: Vec<u16> = (start..start + len).collect();
                if direction == Direction::Reverse {
                    numbers.reverse();
                }
                for number in numbers {
                    let (key, value) = (numbered(number), u32::from(number));
                    assert_eq!(index.insert(&key, value), model.insert(key, value));
                }
            }
            Step::Remove(key) => assert_eq!(index.remove(&key), model.remove(&key)),
            Step::RemoveFrom(key, direction, len) => {
                for _ in 0..len {
                    let Some((found, value)) = index.seek(Bound::Included(&key), direction).map(owned) else {
                        break;
                    };
                    assert_eq!(index.remove(&found), Some(value));
                    assert_eq!(model.remove(&found), Some(value));
                }
            }
            Step::Clear => {
                index.clear();
                model.clear();
            }
            Step::Keep => kept.push((index.clone(), model.clone())),
            Step::Restore(choice) => (index, model) = kept.swap_remove(choice % kept.len()),
            Step::Look(key, lower, upper) => {
                check_key(&index, &model, &key);
                check_range(&index, &model, as_slice(&lower), as_slice(&upper));
            }
        }
        if kept.is_empty() {
            kept.push((index.clone(), model.clone()));
        }
    }
    kept.push((index, model));
    for (index, model) in kept {
        check_all(&index, &model);
        for key in model.keys().step_by(1 + model.len() / 16) {
            check_key(&index, &model, key);
        }
    }
}

fn config() -> Config {
    let (cases, failure_persistence) = if cfg!(miri) {
        (3, None)
    } else {
        (400, Config::default().failure_persistence)
    };
    Config {
        cases,
        failure_persistence,
        ..Config::default()
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 120 })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn btree_equals_the_model(steps in steps()) {
        run::<BTree<u32>>(steps);
    }

    #[test]
    fn crit_bit_equals_the_model(steps in steps()) {
        run::<CritBit<u32>>(steps);
    }
}

fn grow_and_shrink<I: OrderedIndex<u32>>() {
    let count: u32 = if cfg!(miri) { 300 } else { 30_000 };
    let (mut index, mut model) = (I::default(), Model::new());
    // A permutation of the numbers.
    let scattered = |number: u32| (number * 7_919 % count).to_be_bytes();
    for number in 0..count {
        index.insert(&scattered(number), number);
        model.insert(scattered(number).to_vec(), number);
    }
    check_all(&index, &model);
    let snapshot = index.clone();
    for number in 0..count {
        let key = scattered(number * 31 % count);
        assert_eq!(index.remove(&key), model.remove(key.as_slice()));
        assert_eq!(index.remove(&key), None);
        if number % (count / 8) == 0 {
            check_all(&index, &model);
        }
    }
    assert!(index.is_empty());
    assert_eq!(snapshot.len(), count as usize);
    for position in 0..count {
        let (key, _) = snapshot.at(position as usize).expect("it is inside");
        assert_eq!(key, position.to_be_bytes());
        assert_eq!(snapshot.rank(key), position as usize);
    }
}

#[test]
fn both_grow_and_shrink() {
    grow_and_shrink::<BTree<u32>>();
    grow_and_shrink::<CritBit<u32>>();
}

/// Each bit of the longest key branches off another key: the deepest crit-bit tree with keys of
/// this length.
fn deep<I: OrderedIndex<u32>>() {
    let len = if cfg!(miri) { 30 } else { 1_024 };
    let longest = vec![0; len];
    let (mut index, mut model) = (I::default(), Model::new());
    for byte in 0..len {
        let mut keys = vec![longest[..byte].to_vec()];
        keys.extend((0..8).map(|bit| [&longest[..byte], &[1 << bit]].concat()));
        for key in keys {
            index.insert(&key, byte as u32);
            model.insert(key, byte as u32);
        }
    }
    assert_eq!(
        entries(&index, Direction::Forward),
        between(&model, Bound::Unbounded, Bound::Unbounded)
    );
    let snapshot = index.clone();
    for key in model.keys().rev().step_by(97) {
        assert_eq!(index.remove(key), model.get(key).copied());
        assert_eq!(
            snapshot.rank(key) + 1,
            snapshot.len()
                - snapshot
                    .range(Bound::Excluded(key), Bound::Unbounded, Direction::Forward)
                    .len()
        );
    }
    drop(snapshot);
    index.insert(&longest, 0);
    assert_eq!(index.get(&longest), Some(&0));
}

#[test]
fn depth_needs_no_stack() {
    let small = std::thread::Builder::new().stack_size(128 << 10);
    let thread = small.spawn(|| {
        deep::<BTree<u32>>();
        deep::<CritBit<u32>>();
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn snapshots_move_between_threads() {
    fn check<I: OrderedIndex<u32> + Send + 'static>() {
        let mut index = I::default();
        for number in 0..500 {
            index.insert(&numbered(number), u32::from(number));
        }
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let snapshot = index.clone();
                std::thread::spawn(move || snapshot.iter(Direction::Reverse).len() == snapshot.len())
            })
            .collect();
        for number in 0..500 {
            index.remove(&numbered(number));
        }
        assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
    }
    check::<BTree<u32>>();
    check::<CritBit<u32>>();
}
