//! The collections of a version: a persistent map, so a commit costs as much as it changes, not as much as
//! there is.
//!
//! The collections are the leaves of a trie over their ids, four ways per node, lowest bits first:
//! ids are given out in order, so it is balanced. A clone shares all nodes, and a change copies
//! those on its path that are shared. Each inner node caches a summary of the collections below it,
//! by which the few with changes in memory are found without visiting the rest.
//!
//! Names lead to ids in a map of the kind that memtables are, which only creating, renaming and
//! dropping change.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use super::Collection;
use super::reserve::ROUND_NODES;
use crate::error::Result;
use crate::memtable::{Entry, Memtable};
use crate::node::{LeafCell, ValuePlace};
use crate::range::Direction;
use crate::small_map::Key;

const DIGIT_BITS: u32 = 2;
const WAYS: usize = 1 << DIGIT_BITS;

/// Totals of the collections below a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    /// Of the fresh, the active and the frozen memtables.
    pub layers: [Content; 3],
    /// Nodes that rounds of a merge write, at most, if each of the memtables is merged in parts.
    pub round_nodes: u64,
    /// Number of memtables that are not empty.
    pub memtables: u64,
    /// The lowest and the highest `emptied_at` of collections with a memtable that is not empty.
    pub emptied_at: Option<(u64, u64)>,
    /// The highest `changed_at`.
    pub changed_at: u64,
    pub has_indexes: bool,
}

/// Content of memtables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    pub entries: usize,
    pub bytes: usize,
}

impl Summary {
    fn of(collection: &Collection) -> Self {
        let layers = collection.layers.all().map(|memtable| Content {
            entries: memtable.most_entries(),
            bytes: memtable.bytes(),
        });
        let memtables = layers.iter().filter(|content| content.entries > 0).count() as u64;
        Self {
            round_nodes: layers
                .iter()
                .map(|content| ROUND_NODES.min(content.entries as u64))
                .sum(),
            layers,
            memtables,
            emptied_at: (memtables > 0).then_some((collection.emptied_at, collection.emptied_at)),
            changed_at: collection.changed_at,
            has_indexes: collection.indexes.is_some(),
        }
    }

    fn add(&mut self, other: &Self) {
        for (content, other) in self.layers.iter_mut().zip(other.layers) {
            content.entries += other.entries;
            content.bytes += other.bytes;
        }
        self.round_nodes += other.round_nodes;
        self.memtables += other.memtables;
        self.emptied_at = match (self.emptied_at, other.emptied_at) {
            (Some((low, high)), Some((other_low, other_high))) => Some((low.min(other_low), high.max(other_high))),
            (one, other) => one.or(other),
        };
        self.changed_at = self.changed_at.max(other.changed_at);
        self.has_indexes |= other.has_indexes;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layers.iter().map(|content| content.bytes).sum()
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.layers[0].entries > 0
    }

    pub(crate) fn has_active(&self) -> bool {
        self.layers[1].entries > 0
    }

    pub(crate) fn has_frozen(&self) -> bool {
        self.layers[2].entries > 0
    }

    pub(crate) fn has_changes(&self) -> bool {
        self.memtables > 0
    }
}

/// A collection and its name.
#[derive(Clone, Debug)]
struct Leaf {
    name: String,
    collection: Collection,
}

impl Leaf {
    fn pair(&self) -> (&String, &Collection) {
        (&self.name, &self.collection)
    }
}

#[derive(Clone, Debug, Default)]
struct Inner {
    children: [Node; WAYS],
    summary: OnceLock<Summary>,
}

#[derive(Clone, Debug, Default)]
enum Node {
    #[default]
    Empty,
    Inner(Arc<Inner>),
    Leaf(Arc<Leaf>),
}

/// The child of a node that leads to an id. `shift` is the number of the id's bits that led to the
/// node.
fn way(id: u32, shift: u32) -> usize {
    (id >> shift) as usize % WAYS
}

/// The children of a node that are about to change. Copies the node if it is shared.
fn children(inner: &mut Arc<Inner>) -> &mut [Node; WAYS] {
    visited();
    let inner = Arc::make_mut(inner);
    inner.summary.take();
    &mut inner.children
}

impl Node {
    fn summary(&self) -> Summary {
        match self {
            Self::Empty => Summary::default(),
            Self::Leaf(leaf) => Summary::of(&leaf.collection),
            Self::Inner(inner) => *inner.summary.get_or_init(|| {
                let mut sum = Summary::default();
                for child in &inner.children {
                    visited();
                    sum.add(&child.summary());
                }
                sum
            }),
        }
    }

    fn find(&self, id: u32) -> Option<&Arc<Leaf>> {
        let (mut node, mut shift) = (self, 0);
        loop {
            match node {
                Self::Empty => return None,
                Self::Leaf(leaf) => return Some(leaf).filter(|leaf| leaf.collection.id == id),
                Self::Inner(inner) => node = &inner.children[way(id, shift)],
            }
            shift += DIGIT_BITS;
        }
    }

    /// Adds a leaf whose id is not there.
    fn put(&mut self, shift: u32, leaf: Arc<Leaf>) {
        match self {
            Self::Empty => *self = Self::Leaf(leaf),
            Self::Inner(inner) => {
                let child = &mut children(inner)[way(leaf.collection.id, shift)];
                child.put(shift + DIGIT_BITS, leaf);
            }
            Self::Leaf(_) => {
                if let Self::Leaf(other) = std::mem::replace(self, Self::Inner(Arc::default())) {
                    self.put(shift, other);
                }
                self.put(shift, leaf);
            }
        }
    }

    /// Removes a leaf that is there, and nodes left without children.
    fn take(&mut self, shift: u32, id: u32) -> Option<Arc<Leaf>> {
        if let Self::Inner(inner) = self {
            let children = children(inner);
            let taken = children[way(id, shift)].take(shift + DIGIT_BITS, id);
            if children.iter().all(|child| matches!(child, Self::Empty)) {
                *self = Self::Empty;
            }
            return taken;
        }
        match std::mem::take(self) {
            Self::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    fn change(&mut self, wanted: Wanted<'_>, apply: Apply<'_>) -> Result<()> {
        if !wanted(&self.summary()) {
            return Ok(());
        }
        visited();
        match self {
            Self::Empty => Ok(()),
            Self::Inner(inner) => {
                let mut nodes = children(inner).iter_mut();
                nodes.try_for_each(|child| child.change(wanted, apply))
            }
            Self::Leaf(leaf) => {
                let Leaf { name, collection } = Arc::make_mut(leaf);
                apply(name, collection)
            }
        }
    }

    fn select(&self, wanted: Wanted<'_>, selected: &mut Memtable) {
        if !wanted(&self.summary()) {
            return;
        }
        visited();
        match self {
            Self::Empty => {}
            Self::Inner(inner) => inner.children.iter().for_each(|child| child.select(wanted, selected)),
            Self::Leaf(leaf) => note(selected, &leaf.name, leaf.collection.id),
        }
    }

    fn weigh(&self, weight: &dyn Fn(&Summary) -> Option<u64>) -> u64 {
        visited();
        match (weight(&self.summary()), self) {
            (None, Self::Inner(inner)) => inner.children.iter().map(|child| child.weigh(weight)).sum(),
            (known, _) => known.unwrap_or(0),
        }
    }
}

type Wanted<'w> = &'w dyn Fn(&Summary) -> bool;
type Apply<'a> = &'a mut dyn FnMut(&str, &mut Collection) -> Result<()>;

/// The collections by name and by id. A clone takes constant time; everything else takes O(log n)
/// per collection that it is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collections {
    /// All but the recent one.
    root: Node,
    /// The collection changed last, as a leaf. Beside the trie, so that commits to one collection
    /// copy no nodes.
    recent: Node,
    /// The id of each name.
    names: Memtable,
}

impl Collections {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn by_id(&self, id: u32) -> Option<(&String, &Collection)> {
        let found = self.recent.find(id).or_else(|| self.root.find(id));
        found.map(|leaf| leaf.pair())
    }

    pub(crate) fn get_key_value(&self, name: &str) -> Option<(&String, &Collection)> {
        if let Node::Leaf(recent) = &self.recent
            && recent.name.as_str().order(name).is_eq()
        {
            return Some(recent.pair());
        }
        let entry = self.names.get(name.as_bytes())?;
        self.of_entry(entry)
    }

    fn of_entry(&self, entry: Entry<'_>) -> Option<(&String, &Collection)> {
        visited();
        self.by_id(id_in(entry.payload?))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Collection> {
        self.get_key_value(name).map(|(_, collection)| collection)
    }

    pub(crate) fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Collection> {
        let id = self.get(name)?.id;
        self.by_id_mut(id).map(|(_, collection)| collection)
    }

    pub(crate) fn by_id_mut(&mut self, id: u32) -> Option<(&String, &mut Collection)> {
        if self.recent.find(id).is_none() {
            // Otherwise nodes would be copied in vain.
            self.root.find(id)?;
            let leaf = self.root.take(0, id)?;
            self.begin(leaf);
        }
        let Node::Leaf(recent) = &mut self.recent else {
            return None;
        };
        let Leaf { name, collection } = Arc::make_mut(recent);
        Some((name, collection))
    }

    /// Makes a leaf that is not in the trie the recent one.
    fn begin(&mut self, leaf: Arc<Leaf>) {
        if let Node::Leaf(former) = std::mem::replace(&mut self.recent, Node::Leaf(leaf)) {
            self.root.put(0, former);
        }
    }

    /// Adds a collection, in place of any that has its name or its id.
    pub(crate) fn insert(&mut self, name: String, collection: Collection) {
        self.remove(&name);
        if let Some((former, _)) = self.by_id(collection.id) {
            let former = former.clone();
            self.remove(&former);
        }
        note(&mut self.names, &name, collection.id);
        self.begin(Arc::new(Leaf { name, collection }));
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Collection> {
        let id = self.get(name)?.id;
        self.names.remove(name.as_bytes());
        let node = match self.recent.find(id) {
            Some(_) => &mut self.recent,
            None => &mut self.root,
        };
        let leaf = node.take(0, id)?;
        Some(Arc::unwrap_or_clone(leaf).collection)
    }

    /// Iterates in the order of names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Collection)> {
        let entries = self.names.entries();
        entries.filter_map(|entry| self.of_entry(entry))
    }

    /// Iterates from the first name that is not less than `start`.
    pub(crate) fn iter_from<'c>(&'c self, start: &'c str) -> impl Iterator<Item = (&'c String, &'c Collection)> {
        let seek = |bound| self.names.seek(bound, Direction::Forward);
        let first = seek(Bound::Included(start.as_bytes()));
        let entries = std::iter::successors(first, move |entry| seek(Bound::Excluded(entry.key)));
        entries.filter_map(|entry| self.of_entry(entry))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Collection> {
        self.iter().map(|(_, collection)| collection)
    }

    pub(crate) fn summary(&self) -> Summary {
        let mut sum = self.root.summary();
        sum.add(&self.recent.summary());
        sum
    }

    /// Sum of the weights of all collections. `weight` weighs what a summary sums up, which it must
    /// for a single collection.
    pub(crate) fn weigh(&self, weight: impl Fn(&Summary) -> Option<u64>) -> u64 {
        self.root.weigh(&weight) + self.recent.weigh(&weight)
    }

    /// The ids of the collections whose summaries are wanted, in the order of names. Where
    /// collections are wanted, so is what sums them up with others.
    pub(crate) fn select(&self, wanted: impl Fn(&Summary) -> bool) -> Vec<u32> {
        let mut selected = Memtable::default();
        self.recent.select(&wanted, &mut selected);
        self.root.select(&wanted, &mut selected);
        selected
            .entries()
            .filter_map(|entry| entry.payload.map(id_in))
            .collect()
    }

    /// As [`select`](Self::select), with names and collections.
    pub(crate) fn selected(&self, wanted: impl Fn(&Summary) -> bool) -> impl Iterator<Item = (&String, &Collection)> {
        self.select(wanted).into_iter().filter_map(|id| self.by_id(id))
    }

    /// Changes the collections that [`select`](Self::select) would return, in an order of no
    /// meaning.
    pub(crate) fn change(
        &mut self,
        wanted: impl Fn(&Summary) -> bool,
        mut apply: impl FnMut(&str, &mut Collection) -> Result<()>,
    ) -> Result<()> {
        self.recent.change(&wanted, &mut apply)?;
        self.root.change(&wanted, &mut apply)
    }
}

/// Stores the id of a name.
fn note(names: &mut Memtable, name: &str, id: u32) {
    let (mut payload, value) = (Vec::new(), id.to_le_bytes());
    LeafCell::new(value.len(), ValuePlace::Inline(&value)).encode_into(&mut payload);
    names.put(name.as_bytes(), Some(&payload), None);
}

fn id_in(payload: &[u8]) -> u32 {
    match LeafCell::decode(payload).place {
        ValuePlace::Inline(bytes) => bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
        ValuePlace::OutOfLine(_) => 0,
    }
}

#[cfg(test)]
thread_local! {
    /// Collections and nodes that this thread has looked at or copied, except on the way to one.
    static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts the work, for tests.
fn visited() {
    #[cfg(test)]
    VISITED.with(|visited| visited.set(visited.get() + 1));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::memtable::Layers;
    use crate::storage::MemoryStorage;
    use crate::{AdvancedOptions, Database, Durability, Options};

    /// What the model knows of a collection: its id, the number of its fresh entries, and `changed_at`.
    type Model = BTreeMap<String, (u32, usize, u64)>;

    #[derive(Clone, Debug)]
    enum Step {
        Insert { name: u8, id: u32 },
        Remove(u8),
        Put { name: u8, key: u8 },
        Absorb,
        Keep,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Ids that share many low bits lie deep.
        let id = prop_oneof![0..40_u32, (0..8_u32).prop_map(|id| id << 29 | 5), any::<u32>()];
        let step = prop_oneof![
            4 => (any::<u8>(), id).prop_map(|(name, id)| Step::Insert { name, id }),
            2 => any::<u8>().prop_map(Step::Remove),
            4 => (any::<u8>(), any::<u8>()).prop_map(|(name, key)| Step::Put { name, key }),
            1 => Just(Step::Absorb),
            1 => Just(Step::Keep),
        ];
        prop::collection::vec(step, 0..120)
    }

    fn name_of(number: u8) -> String {
        match number % 24 {
            0 => String::new(),
            number => format!("{number}"),
        }
    }

    fn check(collections: &Collections, model: &Model) {
        let listed = collections
            .iter()
            .map(|(name, entry)| (name.clone(), (entry.id, entry.layers.fresh.len(), entry.changed_at)));
        assert!(listed.eq(model.iter().map(|(name, known)| (name.clone(), *known))));
        assert_eq!(collections.len(), model.len());
        for number in 0..24 {
            let name = name_of(number);
            assert_eq!(
                collections.get(&name).map(|entry| entry.id),
                model.get(&name).map(|known| known.0)
            );
            let from = collections.iter_from(&name).map(|(name, _)| name);
            assert!(from.eq(model.range(name.clone()..).map(|(name, _)| name)));
        }
        for (name, (id, ..)) in model {
            assert_eq!(collections.by_id(*id).map(|(name, _)| name), Some(name));
        }
        let summary = collections.summary();
        assert_eq!(summary.layers[0].entries, model.values().map(|known| known.1).sum());
        assert_eq!(
            summary.memtables,
            model.values().filter(|known| known.1 > 0).count() as u64
        );
        assert_eq!(
            summary.changed_at,
            model.values().map(|known| known.2).max().unwrap_or(0)
        );
        let fresh = model.iter().filter(|(_, known)| known.1 > 0).map(|(name, _)| name);
        assert!(collections.selected(Summary::has_fresh).map(|(name, _)| name).eq(fresh));
        // Where it matters which collections are below a node, and where it does not.
        let old = |changed_at| {
            collections.weigh(|summary| match summary.emptied_at {
                Some((_, last)) if last <= changed_at => Some(summary.memtables),
                Some((first, _)) if first <= changed_at => None,
                _ => Some(0),
            })
        };
        for changed_at in [0, 20, 60, 200] {
            let older = model.values().filter(|known| known.1 > 0 && known.2 <= changed_at);
            assert_eq!(old(changed_at), older.count() as u64);
        }
    }

    proptest! {
        #[test]
        fn collections_are_those_of_a_map_and_clones_stay_as_they_were(steps in steps()) {
            let (mut collections, mut model) = (Collections::default(), Model::new());
            let mut kept = Vec::new();
            for (number, step) in (1..).zip(steps) {
                match step {
                    Step::Insert { name, id } => {
                        let name = name_of(name);
                        model.retain(|_, known| known.0 != id);
                        model.insert(name.clone(), (id, 0, number));
                        collections.insert(name, Collection::new(id, number));
                    }
                    Step::Remove(name) => {
                        let name = name_of(name);
                        let removed = collections.remove(&name).map(|entry| entry.id);
                        prop_assert_eq!(removed, model.remove(&name).map(|known| known.0));
                    }
                    Step::Put { name, key } => {
                        let name = name_of(name);
                        if let Some(entry) = collections.get_mut(&name) {
                            let fresh = &mut entry.layers.fresh;
                            fresh.put(&[key], None, None);
                            model.get_mut(&name).unwrap().1 = fresh.len();
                        }
                        prop_assert_eq!(collections.contains_key(&name), model.contains_key(&name));
                    }
                    Step::Absorb => {
                        let taken = collections.change(Summary::has_fresh, |_, entry| {
                            entry.layers = Layers::default();
                            Ok(())
                        });
                        prop_assert!(taken.is_ok());
                        for known in model.values_mut() {
                            known.1 = 0;
                        }
                    }
                    Step::Keep => kept.push((collections.clone(), model.clone())),
                }
                check(&collections, &model);
            }
            for (collections, model) in &kept {
                check(collections, model);
            }
        }
    }

    /// Work of each commit of a round, in a database with `count` collections.
    fn work(count: usize, reserve_bytes: u32, mut commit: impl FnMut(&Database, usize)) -> Vec<usize> {
        let options = Options {
            advanced: AdvancedOptions {
                reserve_bytes,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        };
        let database = Database::open(Arc::new(MemoryStorage::new()), options).unwrap();
        let mut transaction = database.begin().unwrap();
        for number in 0..count {
            transaction.put(&format!("c{number}"), b"key", b"value").unwrap();
        }
        transaction.commit(Durability::Strict).unwrap();
        let mut commit = |number| {
            let before = VISITED.get();
            commit(&database, number);
            VISITED.get() - before
        };
        // The first ones make the summaries.
        let _: Vec<usize> = (0..4).map(&mut commit).collect();
        (4..20).map(&mut commit).collect()
    }

    #[test]
    fn a_commit_does_no_more_work_with_more_collections() {
        for reserve_bytes in [0, 4 << 20] {
            for durability in [Durability::Strict, Durability::Relaxed, Durability::None] {
                let set = |database: &Database, name: &str, number: usize| {
                    database.set(name, b"key", &[number as u8], durability).unwrap();
                };
                let same = |count| work(count, reserve_bytes, |database, number| set(database, "c5", number));
                assert_eq!(same(10), same(10_000), "{durability:?}, {reserve_bytes}");
                let other = |count| {
                    let of = |database: &Database, number: usize| {
                        set(database, &format!("c{}", number * 7919 % count), number);
                    };
                    work(count, reserve_bytes, of).into_iter().max().unwrap()
                };
                // A path is longer by the logarithm.
                let (few, many) = (other(10), other(10_000));
                assert!(many <= 10 * few, "{few} with 10 collections, {many} with 10,000");
                let read = |count| {
                    work(count, reserve_bytes, |database, number| {
                        set(database, "c5", number);
                        let snapshot = database.snapshot();
                        assert!(snapshot.codecs("c7").is_some() && snapshot.collection("c3").is_some());
                        assert!(!database.has_indexes());
                    })
                };
                assert_eq!(read(10), read(10_000), "{durability:?}, {reserve_bytes}");
            }
        }
    }

    #[test]
    fn an_optimistic_commit_does_no_more_work_with_more_collections() {
        let same = |count| {
            work(count, 0, |database, number| {
                let mut transaction = database.transaction(crate::Isolation::Serializable).unwrap();
                transaction.set("c5", b"key", &[number as u8]).unwrap();
                assert!(transaction.codecs("c6").is_some());
                transaction.commit(Durability::Relaxed).unwrap();
            })
        };
        assert_eq!(same(10), same(10_000));
    }

    #[test]
    fn creating_a_collection_does_no_more_work_with_more_collections() {
        let created = |count| {
            let create = |database: &Database, number: usize| {
                database
                    .set(&format!("new{number}"), b"key", b"value", Durability::Strict)
                    .unwrap();
            };
            work(count, 0, create).into_iter().max().unwrap()
        };
        let (few, many) = (created(10), created(10_000));
        assert!(many <= 10 * few, "{few} with 10 collections, {many} with 10,000");
    }
}
