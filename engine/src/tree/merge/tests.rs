use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use proptest::prelude::*;

use super::*;
use crate::block::{BlockFile, Compression};
use crate::node::{LeafCell, Limits, ValuePlace};
use crate::pages::{Draft, FreeSpace, Pager};
use crate::range::{Direction, KeyRange};
use crate::storage::{MemoryStorage, Storage};
use crate::tree::cursor::TreeCursor;

const OWNER: u32 = 3;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type List = Vec<(Vec<u8>, Option<Vec<u8>>)>;

struct ListChanges<'l> {
    list: &'l [(Vec<u8>, Option<Vec<u8>>)],
    known: Option<bool>,
}

impl Changes for ListChanges<'_> {
    fn peek(&self) -> Option<Change<'_>> {
        let (key, payload) = self.list.first()?;
        Some(Change {
            key,
            payload: payload.as_deref(),
            is_known: self.known,
        })
    }

    fn step(&mut self) {
        self.list = &self.list[1..];
    }
}

fn payload(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    LeafCell::inline(value).encode_into(&mut payload);
    payload
}

/// A tree in in-memory storage, and its blocks.
struct Bed {
    pager: Pager,
    free: FreeSpace,
    root: Option<Child>,
    blocks: BTreeSet<u64>,
    limits: Limits,
}

impl Bed {
    fn new(node_bytes: usize) -> Self {
        let limits = Limits::new(node_bytes);
        let file = MemoryStorage::new().open("data", true).unwrap();
        Self {
            // The cache keeps next to nothing, so each read checks a node against its parent.
            pager: Pager::new(BlockFile::new(file, 9), limits, 1),
            free: FreeSpace::new(16),
            root: None,
            blocks: BTreeSet::new(),
            limits,
        }
    }

    /// Merges the changes in slices; returns the number of nodes written.
    fn merge(&mut self, list: &[(Vec<u8>, Option<Vec<u8>>)], budget: usize) -> Result<usize> {
        let mut changes = ListChanges { list, known: None };
        let written = self.edit(|editor| {
            let mut merge = Merge::new(*editor.root, usize::MAX);
            while merge.advance(editor, &mut changes, budget)? {}
            merge.finish(editor, &mut changes)
        })?;
        assert!(changes.list.is_empty());
        Ok(written)
    }

    /// Changes the tree; returns the number of nodes written.
    fn edit(&mut self, edit: impl FnOnce(&mut Editor<'_>) -> Result<()>) -> Result<usize> {
        let mut draft = Draft::new(1);
        let mut root = self.root;
        let mut editor = Editor {
            pager: &self.pager,
            draft: &mut draft,
            free: &self.free,
            root: &mut root,
            owner: OWNER,
            generation: 1,
            compression: Compression::None,
            limits: self.limits,
        };
        edit(&mut editor)?;
        self.root = root;
        let written = draft.spilled.len();
        assert!(draft.released.is_empty(), "nothing is written for nothing");
        for extent in draft.take_retired() {
            assert!(self.blocks.remove(&extent.start), "what is given up was there");
        }
        self.blocks.extend(draft.spilled.keys());
        Ok(written)
    }

    fn content(&self) -> Model {
        let mut cursor = TreeCursor::new(self.root, OWNER, &KeyRange::all(), Direction::Forward);
        let mut records = Model::new();
        while cursor.advance(&self.pager).unwrap() {
            let record = cursor.record().unwrap();
            let ValuePlace::Inline(value) = record.place else {
                panic!("a value out of line")
            };
            records.insert(cursor.key().to_vec(), value.to_vec());
        }
        assert_eq!(self.root.map_or(0, |root| root.count), records.len() as u64);
        records
    }

    /// All nodes, leaves last. Their blocks must be exactly the recorded ones.
    fn nodes(&self) -> Vec<Arc<Node>> {
        let Some(root) = &self.root else {
            assert!(self.blocks.is_empty());
            return Vec::new();
        };
        let mut nodes = vec![self.pager_root(root)];
        let mut found = BTreeSet::from([unit(root)]);
        let mut at = 0;
        while at < nodes.len() {
            let node = Arc::clone(&nodes[at]);
            at += 1;
            if !node.is_leaf() {
                for index in 0..node.len() {
                    assert!(found.insert(unit(&node.child(index))));
                    nodes.push(Pages::child(&self.pager, &node, index, OWNER, Access::Scan).unwrap());
                }
            }
        }
        assert_eq!(found, self.blocks);
        nodes
    }

    fn pager_root(&self, root: &Child) -> Arc<Node> {
        Pages::root(&self.pager, root, OWNER).unwrap()
    }

    /// Used percentage of the leaves.
    fn fill(&self) -> usize {
        let nodes = self.nodes();
        let leaves: Vec<_> = nodes.iter().filter(|node| node.is_leaf()).collect();
        let used: usize = leaves.iter().map(|leaf| leaf.used_bytes()).sum();
        used * 100 / (leaves.len() * self.limits.node_capacity)
    }
}

fn unit(child: &Child) -> u64 {
    child.pointer.unit
}

fn apply(model: &mut Model, list: &List) {
    for (key, change) in list {
        match change {
            Some(payload) => {
                let ValuePlace::Inline(value) = LeafCell::decode(payload).place else {
                    panic!("a value out of line")
                };
                model.insert(key.clone(), value.to_vec());
            }
            None => {
                model.remove(key);
            }
        }
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

fn numbered(numbers: impl Iterator<Item = u32>) -> List {
    let mut list: List = numbers.map(|number| (key(number), Some(payload(&[7; 20])))).collect();
    list.sort();
    list.dedup_by(|a, b| a.0 == b.0);
    list
}

/// The numbers below `count` in a scrambled order, each once.
fn shuffled(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |number| (u64::from(number) * 2_654_435_761 % u64::from(count)) as u32)
}

#[test]
fn leaves_are_packed_after_random_inserts_however_few_come_at_once() {
    for batch in [3000, 300, 30] {
        let mut bed = Bed::new(4096);
        let all: Vec<u32> = shuffled(20_011).collect();
        for part in all.chunks(batch) {
            bed.merge(&numbered(part.iter().copied()), usize::MAX).unwrap();
        }
        assert_eq!(bed.content().len(), all.len());
        assert!(bed.fill() >= 90, "{} of {batch}", bed.fill());
    }
}

#[test]
fn ascending_inserts_fill_the_leaves_and_touch_only_the_last_one() {
    let mut bed = Bed::new(4096);
    let mut written = 0;
    for first in (0..20_000).step_by(1000) {
        written += bed.merge(&numbered(first..first + 1000), usize::MAX).unwrap();
    }
    assert!(bed.fill() >= 96, "{}", bed.fill());
    let leaves = bed.nodes().iter().filter(|node| node.is_leaf()).count();
    // Besides each leaf: the last leaf of each merge and the inner nodes above it.
    assert!(written < leaves + 20 * 5, "{written} nodes for {leaves} leaves");
}

#[test]
fn subtrees_without_changes_are_neither_read_nor_written() {
    let mut bed = Bed::new(4096);
    bed.merge(&numbered(0..20_000), usize::MAX).unwrap();
    let before = bed.blocks.len();
    assert!(before > 150);
    let read = bed.pager.misses.load(std::sync::atomic::Ordering::Relaxed);
    let written = bed
        .merge(&[(key(10_000), Some(payload(&[8; 20])))], usize::MAX)
        .unwrap();
    assert!(written < 8, "{written} nodes");
    let read = bed.pager.misses.load(std::sync::atomic::Ordering::Relaxed) - read;
    assert!(read < 12, "{read} nodes");
}

#[test]
fn many_changes_between_two_records_go_in_slices() {
    // Into an empty tree, into the middle of a leaf, and behind its last record.
    for base in [0..0, 0..5000, 0..20] {
        let mut bed = Bed::new(4096);
        let spread = numbered(base.step_by(10).map(|number| number * 500));
        bed.merge(&spread, usize::MAX).unwrap();
        let list = numbered(5001..9999);
        let mut most = 0;
        bed.edit(|editor| {
            let mut changes = ListChanges {
                list: &list,
                known: None,
            };
            let mut merge = Merge::new(*editor.root, usize::MAX);
            loop {
                let before = changes.list.len();
                let is_unfinished = merge.advance(editor, &mut changes, 2000)?;
                most = most.max(before - changes.list.len());
                if !is_unfinished {
                    break;
                }
            }
            assert!(changes.list.is_empty());
            merge.finish(editor, &mut changes)
        })
        .unwrap();
        assert!((1..200).contains(&most), "{most} changes in one slice");
        assert_eq!(bed.content().len(), spread.len() + list.len());
    }
}

#[test]
fn a_change_that_contradicts_the_tree_is_found() {
    let mut bed = Bed::new(4096);
    bed.merge(&numbered(0..100), usize::MAX).unwrap();
    for (number, known) in [(5, false), (1000, true)] {
        let mut draft = Draft::new(1);
        let mut root = bed.root;
        let mut editor = Editor {
            pager: &bed.pager,
            draft: &mut draft,
            free: &bed.free,
            root: &mut root,
            owner: OWNER,
            generation: 1,
            compression: Compression::None,
            limits: bed.limits,
        };
        let list = [(key(number), None)];
        let mut changes = ListChanges {
            list: &list,
            known: Some(known),
        };
        let mut merge = Merge::new(bed.root, usize::MAX);
        let result = merge
            .advance(&mut editor, &mut changes, usize::MAX)
            .and_then(|_| merge.finish(&mut editor, &mut changes));
        assert!(matches!(result, Err(Error::Corrupt(_))));
    }
}

fn changes() -> impl Strategy<Value = List> {
    let key = prop_oneof![
        prop::collection::vec(0_u8..4, 0..5),
        (0_u32..3000).prop_map(key),
        (0_u32..40).prop_map(|number| [vec![b'k'; 45], key(number)].concat()),
    ];
    let value = prop::option::weighted(
        0.6,
        prop::collection::vec(any::<u8>(), 0..60).prop_map(|value| payload(&value)),
    );
    let some = prop::collection::btree_map(key, value, 0..400).prop_map(|map| map.into_iter().collect());
    // Removes all of a range, or everything.
    let range = (0_u32..3000, 0_u32..3000)
        .prop_map(|(a, b)| (a.min(b)..a.max(b)).map(|number| (key_of(number), None)).collect());
    prop_oneof![4 => some, 1 => range]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    let key = || prop_oneof![prop::collection::vec(0_u8..4, 0..5), (0_u32..3000).prop_map(key)];
    prop_oneof![
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

fn key_of(number: u32) -> Vec<u8> {
    key(number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_tree_is_what_a_sorted_map_would_be(
        lists in prop::collection::vec(changes(), 1..12),
        budget in 1_usize..5000,
        (lower, upper) in (bound(), bound()),
    ) {
        let mut bed = Bed::new(512);
        let mut model = Model::new();
        for list in lists {
            bed.merge(&list, budget).unwrap();
            apply(&mut model, &list);
            prop_assert_eq!(&bed.content(), &model);
            bed.nodes();
        }
        let whole = model.clone();
        for cut in [(lower.clone(), upper.clone()), (lower, Bound::Unbounded), (Bound::Unbounded, upper)] {
            let borrowed = KeyRange { lower: cut.0.as_ref().map(Vec::as_slice), upper: cut.1.as_ref().map(Vec::as_slice) };
            bed.edit(|editor| editor.cut(&borrowed)).unwrap();
            model.retain(|key, _| !cut.contains(key));
            prop_assert_eq!(&bed.content(), &model);
            bed.nodes();
        }
        let again: List = whole.iter().map(|(key, value)| (key.clone(), Some(payload(value)))).collect();
        bed.merge(&again, budget).unwrap();
        prop_assert_eq!(&bed.content(), &whole);
        let all: List = whole.keys().map(|key| (key.clone(), None)).collect();
        bed.merge(&all, budget).unwrap();
        prop_assert!(bed.root.is_none());
        prop_assert!(bed.blocks.is_empty());
    }
}
