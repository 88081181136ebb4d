//! Layout: the content of each part of the data file, and how full each node is.
//!
//! Leaves are not read: the reference to a leaf gives its length. The caller assembles the parts
//! into a picture, so nothing is stored here and the module stays small.

use std::sync::Arc;

use crate::database::Database;
use crate::error::Result;
use crate::node::Child;
use crate::pages::Superblock;
use crate::snapshot::Snapshot;
use crate::state::expiry::HIDDEN;
use crate::state::index::{index_keys_of, index_of};
use crate::state::{Shared, Version};
use crate::tree::walk::{Part, Visit, Walk};

/// The content of a part of the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentKind {
    /// The two superblocks.
    Superblock,
    /// The tree of collections.
    Catalog,
    /// The free map.
    FreeMap,
    /// Inner nodes of a collection.
    Inner,
    /// Leaves of a collection.
    Leaf,
    /// Values stored in their own blocks.
    Value,
    /// Indexes of a collection, and the index keys of its records.
    Index,
    /// The engine's other collections, such as the feed and expiry hints.
    Internal,
    /// Not in the newest state, but retained for snapshots or until the next checkpoints, or part of a
    /// value that is being written.
    Kept,
    /// Available for new blocks.
    Free,
}

/// A part of the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayoutPart {
    /// Its first unit.
    pub start_unit: u64,
    /// Its length in units.
    pub units: u64,
    /// Its content.
    pub kind: ExtentKind,
    /// Position in [`Snapshot::collections`] of the collection it belongs to.
    pub collection: Option<u32>,
    /// Level of the node, 0 for a leaf.
    pub level: u8,
    /// For a node, the bytes in use; for a value, its length before compression.
    pub used_bytes: u64,
}

/// A layout scan in progress, of the state at its start.
pub struct LayoutScan {
    snapshot: Snapshot,
    file_bytes: u64,
    /// Trees still to visit, the next one last.
    trees: Vec<(Child, u32, Owner)>,
    walk: Option<Walk>,
    parts: Vec<LayoutPart>,
    records: u64,
    total_records: u64,
}

impl LayoutScan {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self> {
        // The free map must match the state, so no commit may intervene.
        let writer = shared.lock_writer();
        let snapshot = Snapshot::new(shared);
        let (_, version) = snapshot.parts();
        let first = Superblock::first_data_unit(writer.superblock.unit_shift);
        let mut parts = Vec::new();
        let mut add = |start_unit, units, kind| {
            parts.push(LayoutPart {
                start_unit,
                units,
                kind,
                collection: None,
                level: 0,
                used_bytes: 0,
            });
        };
        add(0, first, ExtentKind::Superblock);
        for extent in writer.space.free.extents() {
            add(extent.start, extent.units, ExtentKind::Free);
        }
        for extent in writer.space.unreleased().chain(writer.space.free.staged()) {
            add(extent.start, extent.units, ExtentKind::Kept);
        }
        if let Some(reference) = &writer.superblock.free_map {
            add(reference.unit, u64::from(reference.units), ExtentKind::FreeMap);
        }
        if let Some(root) = &writer.superblock.catalog {
            let mut walk = Walk::new(Visit::Extents, root, 0).run(&shared.pager, None);
            if let Some(error) = walk.problems.pop() {
                return Err(shared.or_stale(error.in_collection("catalog")));
            }
            for (reference, _) in walk.blocks {
                add(reference.unit, u64::from(reference.units), ExtentKind::Catalog);
            }
        }
        let mut trees = Vec::new();
        let mut total_records = 0;
        let indexes = trees_of_indexes(version);
        let mut visible = 0..;
        for (name, collection) in version.collections.iter() {
            let owner = if !name.starts_with(HIDDEN) {
                visible.next().map_or(Owner::Engine, Owner::Collection)
            } else if let Some((_, position)) = indexes.iter().find(|(id, _)| *id == collection.id) {
                Owner::Indexes(*position)
            } else {
                Owner::Engine
            };
            if let Some(root) = collection.root {
                total_records += root.count;
                trees.push((root, collection.id, owner));
            }
        }
        trees.reverse();
        Ok(Self {
            file_bytes: writer.space.free.end() * shared.pager.blocks.unit_bytes() as u64,
            total_records,
            records: 0,
            trees,
            walk: None,
            parts,
            snapshot,
        })
    }

    /// Visits up to `visits` more nodes and values and returns the parts found; `None` at the end.
    ///
    /// The first parts are those that belong to no collection. Reads inner nodes, and leaves with
    /// values in their own blocks.
    ///
    /// # Errors
    /// Storage errors and corruption; [`Error::Stale`](crate::Error::Stale) beside a writer.
    pub fn next_parts(&mut self, visits: usize) -> Result<Option<Vec<LayoutPart>>> {
        for _ in 0..visits.max(1) {
            let Some((root, id, owner)) = self.trees.last() else {
                break;
            };
            let walk = self.walk.get_or_insert_with(|| Walk::new(Visit::Extents, root, *id));
            let (shared, _) = self.snapshot.parts();
            walk.step(&shared.pager, None);
            if let Some(error) = walk.problems.pop() {
                return Err(shared.or_stale(error));
            }
            for (block, part) in walk.blocks.drain(..) {
                self.parts.push(part_of(
                    *owner,
                    part,
                    block.unit,
                    u64::from(block.units),
                    u64::from(block.raw_len),
                ));
            }
            if walk.is_at_end() {
                self.records += walk.records;
                self.walk = None;
                self.trees.pop();
            }
        }
        let parts = std::mem::take(&mut self.parts);
        Ok(if parts.is_empty() && self.trees.is_empty() {
            None
        } else {
            Some(parts)
        })
    }

    /// Number of records below the nodes visited so far, and in total.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let records = self.walk.as_ref().map_or(0, |walk| walk.records);
        (self.records + records, self.total_records)
    }

    /// The state being scanned.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Length of the data file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Allocation unit.
    #[must_use]
    pub fn unit_bytes(&self) -> usize {
        self.snapshot.parts().0.pager.blocks.unit_bytes()
    }

    /// Maximum bytes in use in a node.
    #[must_use]
    pub fn node_bytes(&self) -> usize {
        self.snapshot.config().limits.node_capacity
    }
}

impl std::fmt::Debug for LayoutScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayoutScan")
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

/// The owner of a tree. Collections are named by their position among the visible ones.
#[derive(Clone, Copy)]
enum Owner {
    Collection(u32),
    Indexes(u32),
    Engine,
}

/// The ids of the hidden collections in which indexes are stored, each with the position of the
/// collection that has the index.
fn trees_of_indexes(version: &Version) -> Vec<(u32, u32)> {
    let visible = version.collections.iter().filter(|(name, _)| !name.starts_with(HIDDEN));
    let mut trees = Vec::new();
    for (position, (_, collection)) in (0..).zip(visible) {
        if collection.indexes().is_empty() {
            continue;
        }
        let names = collection.indexes().iter().map(|index| index_of(index.id));
        for name in names.chain([index_keys_of(collection.id)]) {
            if let Some(tree) = version.collections.get(name.as_str()) {
                trees.push((tree.id, position));
            }
        }
    }
    trees
}

fn part_of(owner: Owner, part: Part, start_unit: u64, units: u64, used_bytes: u64) -> LayoutPart {
    let (kind, collection, level) = match (owner, part) {
        (Owner::Engine, _) => (ExtentKind::Internal, None, 0),
        (Owner::Indexes(of), _) => (ExtentKind::Index, Some(of), 0),
        (Owner::Collection(of), Part::Value) => (ExtentKind::Value, Some(of), 0),
        (Owner::Collection(of), Part::Node(0)) => (ExtentKind::Leaf, Some(of), 0),
        (Owner::Collection(of), Part::Node(level)) => (ExtentKind::Inner, Some(of), level),
    };
    LayoutPart {
        start_unit,
        units,
        kind,
        collection,
        level,
        used_bytes,
    }
}

impl Database {
    /// Starts a scan of the content of each part of the data file, and how full the nodes are.
    ///
    /// The scan shows the current state and keeps its space until it is dropped. Reads the catalog
    /// immediately, the other trees in slices; waits for the writer.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mangrove_engine::{Database, Durability, ExtentKind, Options, storage::MemoryStorage};
    /// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
    /// database.set("cities", b"Quito", b"2.0 M", Durability::Strict)?;
    /// database.checkpoint()?;
    /// let mut scan = database.layout_scan()?;
    /// let mut leaves = 0;
    /// while let Some(parts) = scan.next_parts(1000)? {
    ///     leaves += parts.iter().filter(|part| part.kind == ExtentKind::Leaf).count();
    /// }
    /// assert_eq!(leaves, 1);
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors, corruption of the catalog, [`Error::Stale`](crate::Error::Stale) beside a
    /// writer.
    pub fn layout_scan(&self) -> Result<LayoutScan> {
        LayoutScan::new(&self.shared)
    }
}
