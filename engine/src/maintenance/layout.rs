//! Layout: what each part of the data file holds, and how full each node is. Leaves are not read: the reference to one says how long it is.
//! Whoever wants a picture puts the parts together, so that nothing is kept here and the module stays small.

use std::sync::Arc;

use crate::database::Database;
use crate::error::Result;
use crate::node::Child;
use crate::pages::Superblock;
use crate::snapshot::Snapshot;
use crate::state::Shared;
use crate::state::expiry::HIDDEN;
use crate::tree::walk::{Part, Visit, Walk};

/// What a part of the data file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentKind {
    /// The two superblocks.
    Superblock,
    /// The tree of collections.
    Catalog,
    /// The list of what is free.
    FreeMap,
    /// Inner nodes of a collection.
    Inner,
    /// Leaves of a collection.
    Leaf,
    /// Values that have blocks of their own.
    Value,
    /// Collections of the engine's own: the feed, and hints about records that expire.
    Internal,
    /// In no newest state, but kept for snapshots or until the next checkpoints.
    Kept,
    /// To be used next.
    Free,
}

/// A part of the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayoutPart {
    /// Where it begins, in units.
    pub start_unit: u64,
    /// Its length in units.
    pub units: u64,
    /// What it holds.
    pub kind: ExtentKind,
    /// Index in [`Snapshot::collections`] of the one that it belongs to.
    pub collection: Option<u32>,
    /// Level of a node, 0 for a leaf.
    pub level: u8,
    /// Of a node, the bytes in use in it; of a value, its bytes before compression.
    pub used_bytes: u64,
}

/// A layout that is being found out, as it was when it began.
pub struct LayoutScan {
    snapshot: Snapshot,
    file_bytes: u64,
    /// Still to be visited, the next one last: root, owner, and index of the collection unless it is the engine's own.
    trees: Vec<(Child, u32, Option<u32>)>,
    walk: Option<Walk>,
    parts: Vec<LayoutPart>,
    records: u64,
    total_records: u64,
}

impl LayoutScan {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self> {
        // What is free has to fit to the state: no commit may come between.
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
        for extent in writer.space.kept() {
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
        let mut visible = 0..;
        for (name, collection) in &version.collections {
            let index = if name.starts_with(HIDDEN) { None } else { visible.next() };
            if let Some(root) = collection.root {
                total_records += root.count;
                trees.push((root, collection.id, index));
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

    /// Visits so many nodes and values more and gives the parts that they lead to; `None` at the end. The first ones are those that belong to no
    /// collection. Inner nodes are read, and leaves with values that have blocks of their own.
    ///
    /// # Errors
    /// Storage errors and corruption; [`Error::Stale`](crate::Error::Stale) beside a writer.
    pub fn next_parts(&mut self, visits: usize) -> Result<Option<Vec<LayoutPart>>> {
        for _ in 0..visits.max(1) {
            let Some((root, owner, index)) = self.trees.last() else {
                break;
            };
            let walk = self.walk.get_or_insert_with(|| Walk::new(Visit::Extents, root, *owner));
            let (shared, _) = self.snapshot.parts();
            walk.step(&shared.pager, None);
            if let Some(error) = walk.problems.pop() {
                return Err(shared.or_stale(error));
            }
            for (block, part) in walk.blocks.drain(..) {
                self.parts.push(part_of(
                    *index,
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

    /// Records that the nodes visited so far lead to, and records in all.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let records = self.walk.as_ref().map_or(0, |walk| walk.records);
        (self.records + records, self.total_records)
    }

    /// The state that it shows.
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

    /// Most bytes that can be in use in a node.
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

fn part_of(collection: Option<u32>, part: Part, start_unit: u64, units: u64, used_bytes: u64) -> LayoutPart {
    let (kind, level) = match (collection, part) {
        (None, _) => (ExtentKind::Internal, 0),
        (_, Part::Value) => (ExtentKind::Value, 0),
        (_, Part::Node(0)) => (ExtentKind::Leaf, 0),
        (_, Part::Node(level)) => (ExtentKind::Inner, level),
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
    /// Begins to look at what each part of the data file holds and how full the nodes are, as it is now. The space that this state takes is
    /// kept until the scan is dropped. The catalog is read at once, the rest in slices; waits for the writer.
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
    /// Storage errors, corruption of the catalog, [`Error::Stale`] beside a writer.
    pub fn layout_scan(&self) -> Result<LayoutScan> {
        LayoutScan::new(&self.shared)
    }
}
