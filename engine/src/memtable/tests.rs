use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;

use super::*;
use crate::block::{BlockFile, BlockRef, Compression};
use crate::node::{Child, LeafCell, Limits, Node as NodePage, ValuePlace};
use crate::pages::{Draft, FreeSpace, Pager};
use crate::range::{Direction, KeyRange};
use crate::storage::{MemoryStorage, Storage};
use crate::tree::merge::{Change, Changes, Merge};
use crate::tree::{Editor, Pages};

const OWNER: u32 = 1;

type Model = BTreeMap<Vec<u8>, u8>;

fn payload(value: u8) -> Vec<u8> {
    let mut payload = Vec::new();
    LeafCell::inline(&[value]).encode_into(&mut payload);
    payload
}

fn value(record: &LeafCell<'_>) -> u8 {
    match record.place {
        ValuePlace::Inline(value) => value[0],
        ValuePlace::OutOfLine(_) => panic!("nothing is that long"),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, u8, bool),
    Delete(Vec<u8>, bool),
    Look(Vec<u8>, Bound<Vec<u8>>, Bound<Vec<u8>>, u64),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..5, 0..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (key(), any::<u8>(), any::<bool>()).prop_map(|(key, value, looks)| Step::Set(key, value, looks)),
        3 => (key(), any::<bool>()).prop_map(|(key, looks)| Step::Delete(key, looks)),
        2 => (key(), bound(), bound(), 0_u64..40).prop_map(|(key, lower, upper, skip)| Step::Look(key, lower, upper, skip)),
    ]
}

/// A tree with these records.
fn tree(pager: &Pager, draft: &mut Draft, records: &Model) -> Option<Child> {
    let mut root = None;
    let mut editor = Editor {
        pager,
        draft,
        free: &FreeSpace::new(16),
        root: &mut root,
        owner: OWNER,
        generation: 1,
        compression: Compression::None,
        limits: Limits::new(256),
    };
    let payloads = records.iter().map(|(key, value)| (key.clone(), payload(*value)));
    let mut changes = RecordChanges(payloads.collect());
    Merge::new(None, records.len()).run(&mut editor, &mut changes).unwrap();
    root
}

struct RecordChanges(BTreeMap<Vec<u8>, Vec<u8>>);

impl Changes for RecordChanges {
    fn peek(&self) -> Option<Change<'_>> {
        let (key, payload) = self.0.first_key_value()?;
        Some(Change {
            key,
            payload: Some(payload),
            is_known: None,
        })
    }

    fn step(&mut self) {
        self.0.pop_first();
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn is_inside(range: &KeyRange<'_>, key: &[u8]) -> bool {
    let above = match range.lower {
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
        Bound::Unbounded => true,
    };
    let below = match range.upper {
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
        Bound::Unbounded => true,
    };
    above && below
}

fn check(records: &Records<'_, impl Pages>, root: Option<Child>, model: &Model, step: &Step) {
    let Step::Look(key, lower, upper, skip) = step else {
        return;
    };
    assert_eq!(
        records.find(key).unwrap().map(|found| value(&found.record())),
        model.get(key).copied()
    );
    assert_eq!(records.len().unwrap(), model.len() as u64);
    assert_eq!(records.rank(key).unwrap(), model.range(..key.clone()).count() as u64);
    for (index, (key, expected)) in model.iter().enumerate().step_by(3) {
        let (found, record) = records.at(index as u64).unwrap().unwrap();
        assert_eq!((&found, value(&record.record())), (key, *expected));
    }
    assert!(records.at(model.len() as u64).unwrap().is_none());
    let range = KeyRange {
        lower: borrowed(lower),
        upper: borrowed(upper),
    };
    let inside: Vec<_> = model.iter().filter(|(key, _)| is_inside(&range, key)).collect();
    let (from, to) = records.positions(&range).unwrap();
    assert_eq!(to - from, inside.len() as u64);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut expected = inside.clone();
        if direction == Direction::Reverse {
            expected.reverse();
        }
        let cursor = || LayeredCursor::new(root, OWNER, records.layers, &range, direction);
        let rest = |cursor: &mut LayeredCursor| {
            let mut list = Vec::new();
            while cursor.advance(records).unwrap() {
                list.push((cursor.key().to_vec(), value(&cursor.record().unwrap())));
            }
            assert!(!cursor.advance(records).unwrap());
            assert!(cursor.record().is_none());
            list
        };
        let owned = |list: &[(&Vec<u8>, &u8)]| -> Vec<_> {
            list.iter().map(|(key, value)| ((*key).clone(), **value)).collect()
        };
        assert_eq!(rest(&mut cursor()), owned(&expected));
        let mut skipping = cursor();
        skipping.skip(records, *skip).unwrap();
        assert_eq!(
            rest(&mut skipping),
            owned(expected.get(*skip as usize..).unwrap_or_default())
        );
        let mut later = cursor();
        if later.advance(records).unwrap() {
            later.skip(records, *skip).unwrap();
            assert_eq!(
                rest(&mut later),
                owned(expected.get(1 + *skip as usize..).unwrap_or_default())
            );
        }
        let mut sought = cursor();
        sought.advance(records).unwrap();
        sought.seek(records.pages, key).unwrap();
        let past = expected.iter().position(|(other, _)| match direction {
            Direction::Forward => *other >= key,
            Direction::Reverse => *other <= key,
        });
        assert_eq!(
            rest(&mut sought),
            past.map_or_else(Vec::new, |past| owned(&expected[past..]))
        );
    }
}

/// Whether the layers below memtable number `level` have a key; `None` if the change is blind.
fn below(pager: &Pager, root: Option<&Child>, layers: &Layers, level: usize, key: &[u8], looks: bool) -> Option<bool> {
    let mut lower = layers.clone();
    if level > 0 {
        lower.fresh = Memtable::default();
    } else {
        return looks.then(|| find(pager, root, &Layers::default(), key));
    }
    if level == 1 {
        lower.active = Memtable::default();
    }
    looks.then(|| find(pager, root, &lower, key))
}

fn find(pager: &Pager, root: Option<&Child>, layers: &Layers, key: &[u8]) -> bool {
    let records = Records {
        pages: pager,
        root,
        owner: OWNER,
        layers,
        gaps: None,
        now: 0,
    };
    records.find(key).unwrap().is_some()
}

/// Counts the pages that are looked up.
struct Counted<'p> {
    pager: &'p Pager,
    lookups: Cell<usize>,
}

impl Pages for Counted<'_> {
    fn lookup(&self, reference: &BlockRef) -> std::result::Result<Arc<NodePage>, BlockRef> {
        self.lookups.set(self.lookups.get() + 1);
        self.pager.lookup(reference)
    }

    fn pager(&self) -> &Pager {
        self.pager
    }
}

/// A queue whose head was removed: the first record behind it is found without a look at every
/// leaf, in either direction and from each layer, and also while few entries are known.
#[test]
fn removed_entries_are_passed_over_by_their_number() {
    const RECORDS: u32 = 3000;
    let keys: Vec<Vec<u8>> = (0..RECORDS).map(|n| n.to_be_bytes().to_vec()).collect();
    for level in 0..3 {
        for looks in [false, true] {
            let file = MemoryStorage::new().open("data", true).unwrap();
            let pager = Pager::new(BlockFile::new(file, 9), Limits::new(256), 1 << 20);
            let mut draft = Draft::new(1);
            let base: Model = keys.iter().map(|key| (key.clone(), 1)).collect();
            let root = tree(&pager, &mut draft, &base);
            let mut layers = Layers::default();
            let middle = keys.len() / 2;
            let removed = keys.iter().enumerate().filter(|(index, _)| *index != middle);
            for (_, key) in removed {
                let memtables = [&mut layers.frozen, &mut layers.active, &mut layers.fresh];
                let memtable = memtables.into_iter().nth(level).unwrap();
                memtable.put(key, None, looks.then_some(true));
            }
            let pages = Counted {
                pager: &pager,
                lookups: Cell::new(0),
            };
            let records = Records {
                pages: &pages,
                root: root.as_ref(),
                owner: OWNER,
                layers: &layers,
                gaps: None,
                now: 0,
            };
            // The first time, entries of blind writes are looked up, each once.
            assert_eq!(records.len().unwrap(), 1);
            for direction in [Direction::Forward, Direction::Reverse] {
                pages.lookups.set(0);
                let mut cursor = LayeredCursor::new(root, OWNER, &layers, &KeyRange::all(), direction);
                assert!(cursor.advance(&records).unwrap());
                assert_eq!(cursor.key(), keys[middle]);
                assert!(!cursor.advance(&records).unwrap());
                let lookups = pages.lookups.get();
                assert!(lookups < 200, "{lookups} lookups, level {level}");
            }
            // The ranges in which there is nothing end as quickly.
            for (lower, upper) in [(0, middle), (middle + 1, keys.len() - 1)] {
                for direction in [Direction::Forward, Direction::Reverse] {
                    pages.lookups.set(0);
                    let range = KeyRange {
                        lower: Bound::Included(keys[lower].as_slice()),
                        upper: Bound::Excluded(keys[upper].as_slice()),
                    };
                    let mut cursor = LayeredCursor::new(root, OWNER, &layers, &range, direction);
                    assert!(!cursor.advance(&records).unwrap());
                    let lookups = pages.lookups.get();
                    assert!(lookups < 200, "{lookups} lookups, level {level}");
                }
            }
        }
    }
}

#[test]
fn an_entry_that_is_wrong_about_the_layers_below_is_found() {
    let file = MemoryStorage::new().open("data", true).unwrap();
    let pager = Pager::new(BlockFile::new(file, 9), Limits::new(256), 1 << 20);
    let mut draft = Draft::new(1);
    let base = Model::from([(vec![1], 1), (vec![2], 2)]);
    let root = tree(&pager, &mut draft, &base);
    let check = |level: usize, key: u8, below: Option<bool>| {
        let mut layers = Layers::default();
        layers.frozen.put(&[3], Some(&payload(3)), Some(false));
        layers.active.put(&[1], None, Some(true));
        let memtables = [&mut layers.frozen, &mut layers.active, &mut layers.fresh];
        let memtable = memtables.into_iter().nth(level).unwrap();
        memtable.put(&[key], Some(&payload(9)), below);
        let records = Records {
            pages: &pager,
            root: root.as_ref(),
            owner: OWNER,
            layers: &layers,
            gaps: None,
            now: 0,
        };
        records.check_deltas().is_ok()
    };
    for (level, key, is_below) in [
        (0, 2, true),
        (0, 4, false),
        (1, 3, true),
        (1, 2, true),
        (2, 1, false),
        (2, 3, true),
    ] {
        assert!(check(level, key, Some(is_below)), "level {level}, key {key}");
        assert!(check(level, key, None), "level {level}, key {key}, not looked up");
        assert!(!check(level, key, Some(!is_below)), "level {level}, key {key}, wrong");
    }
}

/// Changes to each memtable, from the frozen to the fresh one.
fn changes() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(step(), 0..40), 3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Memtables above a tree read like a sorted map, whatever is known about the layers below,
    /// also after two of them are merged.
    #[test]
    fn layers_are_read_as_one(base in prop::collection::btree_map(key(), any::<u8>(), 0..60), changes in changes()) {
        let file = MemoryStorage::new().open("data", true).unwrap();
        let pager = Pager::new(BlockFile::new(file, 9), Limits::new(256), 1 << 20);
        let mut draft = Draft::new(1);
        let root = tree(&pager, &mut draft, &base);
        let mut model = base;
        let mut layers = Layers::default();
        for (level, steps) in changes.into_iter().enumerate() {
            for step in steps {
                let (key, value, looks) = match &step {
                    Step::Set(key, value, looks) => (key, Some(*value), *looks),
                    Step::Delete(key, looks) => (key, None, *looks),
                    Step::Look(..) => {
                        let records = Records { pages: &pager, root: root.as_ref(), owner: OWNER, layers: &layers, gaps: None, now: 0 };
                        check(&records, root, &model, &step);
                        continue;
                    }
                };
                let known = below(&pager, root.as_ref(), &layers, level, key, looks);
                let memtable = [&mut layers.frozen, &mut layers.active, &mut layers.fresh].into_iter().nth(level).unwrap();
                memtable.put(key, value.map(payload).as_deref(), known);
                match value {
                    Some(value) => model.insert(key.clone(), value),
                    None => model.remove(key),
                };
            }
        }
        let all = Step::Look(vec![2], Bound::Unbounded, Bound::Unbounded, 3);
        let look = |layers: &Layers| {
            let records = Records { pages: &pager, root: root.as_ref(), owner: OWNER, layers, gaps: None, now: 0 };
            check(&records, root, &model, &all);
        };
        let fresh = layers.clone();
        look(&layers);
        layers.absorb();
        look(&layers);
        layers.thaw();
        look(&layers);
        look(&fresh);
    }

    /// A memtable holds what a sorted map holds, and its clones stay unchanged.
    #[test]
    fn memtables_are_sorted_maps(
        steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..12), prop::option::of(0_usize..600), 0_u8..20), 0..600),
        is_ascending in any::<bool>(),
    ) {
        let mut memtable = Memtable::default();
        let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut copies = Vec::new();
        for (index, (mut key, len, kind)) in steps.into_iter().enumerate() {
            if is_ascending {
                key.splice(0..0, (index as u32).to_be_bytes());
            }
            let payload = len.map(|len| { let mut bytes = Vec::new(); LeafCell::inline(&vec![kind; len]).encode_into(&mut bytes); bytes });
            match kind {
                0 => {
                    memtable.remove(&key);
                    model.remove(&key);
                }
                1 => {
                    let count = model.len() / 3;
                    memtable.drop_first(count);
                    model = model.into_iter().skip(count).collect();
                }
                2 => copies.push((memtable.clone(), model.clone())),
                _ => {
                    memtable.put(&key, payload.as_deref(), None);
                    model.insert(key, payload);
                }
            }
        }
        copies.push((memtable, model));
        for (memtable, model) in copies {
            prop_assert_eq!(memtable.len(), model.len());
            prop_assert_eq!(memtable.bytes(), memtable.nodes().root.as_ref().map_or(0, |root| root.memory_bytes()));
            let entries: Vec<_> = memtable.entries().map(|entry| (entry.key.to_vec(), entry.payload.map(<[u8]>::to_vec))).collect();
            let expected: Vec<_> = model.iter().map(|(key, payload)| (key.clone(), payload.clone())).collect();
            prop_assert_eq!(&entries, &expected);
            for (index, (key, payload)) in model.iter().enumerate().step_by(7) {
                prop_assert_eq!(memtable.get(key).unwrap().payload, payload.as_deref());
                prop_assert_eq!(memtable.at(index).unwrap().key, key.as_slice());
                let after = Bound::Excluded(key.as_slice());
                let next = memtable.seek(after, Direction::Forward).map(|entry| entry.key.to_vec());
                prop_assert_eq!(next.as_ref(), expected.get(index + 1).map(|(key, _)| key));
                let last = memtable.seek(after, Direction::Reverse).map(|entry| entry.key.to_vec());
                prop_assert_eq!(last.as_ref(), index.checked_sub(1).map(|last| &expected[last].0));
            }
        }
    }

    /// Blind changes end up as if they had been put one by one, whatever comes between them.
    #[test]
    fn appended_changes_are_put_in_order(steps in prop::collection::vec((0_u8..9, 1_u32..300, any::<u32>(), 1_u32..4000), 0..24), is_long in any::<bool>()) {
        type Known = (Option<Vec<u8>>, Option<bool>);
        let mut memtable = Memtable::default();
        let mut model: BTreeMap<Vec<u8>, Known> = BTreeMap::new();
        let mut copies = Vec::new();
        for (kind, count, seed, keys) in steps {
            let key = |number: u32| {
                let prefix = if is_long { "a common prefix:" } else { "" };
                format!("{prefix}{}", number % keys).into_bytes()
            };
            match kind {
                0 => prop_assert_eq!(memtable.get(&key(seed)).map(|entry| entry.payload.map(<[u8]>::to_vec)), model.get(&key(seed)).map(|known| known.0.clone())),
                1 => copies.push((memtable.clone(), model.clone())),
                2 => {
                    memtable.remove(&key(seed));
                    model.remove(&key(seed));
                }
                3 => {
                    let count = model.len() / 3;
                    memtable.drop_first(count);
                    model = model.into_iter().skip(count).collect();
                }
                _ => {
                    for number in 0..count {
                        let random = (number ^ seed).wrapping_mul(0x9E37_79B1).rotate_left(13);
                        let key = key(if kind == 4 { number } else { random });
                        let payload = (random % 5 > 0).then(|| payload(random as u8));
                        let below = (kind == 5).then_some(random.is_multiple_of(2));
                        let has_appended = below.is_none() && memtable.append(&key, payload.as_deref());
                        if !has_appended {
                            memtable.put(&key, payload.as_deref(), below);
                        }
                        let known = model.entry(key).or_insert((None, below));
                        known.0 = payload;
                    }
                }
            }
            prop_assert_eq!(memtable.is_empty(), model.is_empty());
        }
        memtable.sort();
        copies.push((memtable, model));
        for (memtable, model) in copies {
            prop_assert_eq!(memtable.len(), model.len());
            prop_assert_eq!(memtable.bytes(), memtable.nodes().root.as_ref().map_or(0, |root| root.memory_bytes()));
            let entries: Vec<_> = memtable.entries().map(|entry| (entry.key.to_vec(), (entry.payload.map(<[u8]>::to_vec), entry.below.get()))).collect();
            prop_assert_eq!(&entries, &model.into_iter().collect::<Vec<_>>());
            for (position, (key, (payload, _))) in entries.iter().enumerate().step_by(11) {
                prop_assert_eq!(memtable.get(key).unwrap().payload, payload.as_deref());
                prop_assert_eq!(memtable.at(position).unwrap().key, key.as_slice());
            }
        }
    }

    /// Several layers yield the same changes as one layer with all of them.
    #[test]
    fn layers_merge_into_one_list_of_changes(layers in prop::collection::vec(prop::collection::vec((0_u32..400, 0_u8..6), 0..500), 1..4), is_read in any::<bool>()) {
        type Known = (Option<Vec<u8>>, Option<bool>);
        let mut model: BTreeMap<Vec<u8>, Known> = BTreeMap::new();
        let mut memtables = Vec::new();
        for changes in layers {
            let mut memtable = Memtable::default();
            for (number, kind) in changes {
                let key = number.wrapping_mul(0x9E37_79B1).to_be_bytes();
                let payload = (kind > 1).then(|| payload(number as u8));
                // Only entries of the oldest layer, right above the tree, know what the tree has.
                let below = (kind == 5 && memtables.is_empty()).then_some(number.is_multiple_of(2));
                if below.is_some() || !memtable.append(&key, payload.as_deref()) {
                    memtable.put(&key, payload.as_deref(), below);
                }
                model.entry(key.to_vec()).or_insert((None, below)).0 = payload;
            }
            if is_read {
                memtable.len();
            }
            memtables.push(memtable);
        }
        let most: usize = memtables.iter().map(Memtable::most_entries).sum();
        prop_assert!(most >= model.len());
        let mut changes = MergedChanges::new(memtables);
        let mut found = Vec::new();
        while let Some(change) = changes.peek() {
            found.push((change.key.to_vec(), (change.payload.map(<[u8]>::to_vec), change.is_known)));
            changes.step();
        }
        prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn many_changes_without_a_look_wait_to_be_sorted() {
    let mut memtable = Memtable::default();
    let changes = (0..10_000_u32).map(|number| number.wrapping_mul(0x9E37_79B1).to_be_bytes());
    let put = changes.filter(|key| !memtable.append(key, Some(&payload(1))));
    let put: Vec<_> = put.collect();
    assert_eq!(put.len(), usize::from(MIN_STREAK));
    assert!(memtable.get(&put[0]).is_none() && memtable.len() == 10_000 - put.len());
    assert!(!memtable.append(&put[0], Some(&payload(1))), "it was read");
}
