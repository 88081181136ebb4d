//! Recovery of one tree: by references first, then, for keys they do not reach, from the scan.

use super::MAX_NODE_BYTES;
use super::control::{Control, Flow};
use super::holes::{Hole, Holes, Range};
use super::report::{RecoverPhase, RecoverReport};
use super::scan::{Found, Index, newest_root, scan};
use super::source::Source;
use crate::block::BlockFile;
use crate::error::Error;
use crate::node::{Child, Limits, Node};
use crate::pages::{Access, Expected, Extent, Pager};
use crate::tree::value;

/// Pages of the source kept in memory.
const CACHE_BYTES: usize = 1 << 20;

/// Receives the records of a tree, in the order of their leaves.
pub(super) trait Sink {
    /// Discards the records of older leaves under these keys, because a newer leaf covers them.
    fn clear(&mut self, range: &Range) -> Result<(), Error>;
    /// Takes a record with its expiry, 0 for none, and the checkpoint as of which it is known.
    fn put(&mut self, key: &[u8], value: &[u8], expires: u64, generation: u64) -> Result<(), Error>;
    /// Takes the key of a record whose value cannot be read.
    fn lose(&mut self, key: &[u8]);
    /// Called after the last record of a leaf.
    fn end_leaf(&mut self) -> Result<(), Error>;
}

/// Outcome of recovering a tree.
pub(super) struct Outcome {
    /// Key ranges that references did not reach.
    pub(super) holes: Vec<Hole>,
    /// Checkpoint of the root used.
    pub(super) as_of: u64,
    /// The scan found the root, which is newer than the given one.
    pub(super) is_found: bool,
}

/// The state of a recovery.
pub(super) struct Salvage<'a> {
    pub(super) source: Source,
    pub(super) pager: Pager,
    pub(super) unit_shift: u32,
    /// Built on first use.
    pub(super) index: Option<Index>,
    /// Blocks of later checkpoints were never part of the database.
    pub(super) last_generation: u64,
    /// Space known to be free, by address.
    pub(super) free: Vec<Extent>,
    pub(super) report: RecoverReport,
    pub(super) control: Control<'a>,
}

impl<'a> Salvage<'a> {
    pub(super) fn new(
        source: Source,
        unit_shift: u32,
        last_generation: u64,
        index: Option<Index>,
        control: Control<'a>,
    ) -> Self {
        let blocks =
            BlockFile::new(std::sync::Arc::clone(source.file()), unit_shift).encrypted_by(source.cipher.clone());
        Self {
            pager: Pager::new(blocks, Limits::new(MAX_NODE_BYTES as usize), CACHE_BYTES),
            source,
            unit_shift,
            index,
            last_generation,
            free: Vec::new(),
            report: RecoverReport::new(),
            control,
        }
    }

    /// Nodes of an owner outside free space, oldest first; none without a scan.
    pub(super) fn used_nodes(&self, owner: u32) -> impl DoubleEndedIterator<Item = &Found> {
        let nodes = self.index.as_ref().map_or(&[][..], |index| index.of(owner));
        nodes.iter().filter(|found| !self.is_free(found))
    }

    /// Returns the reference to a root that the scan found.
    pub(super) fn found_root(&mut self, found: Found) -> Option<Child> {
        let (header, node) = self.source.node_at(found.offset()).ok()?;
        let reference = header.reference(found.offset(), self.unit_shift)?;
        Some(node.as_child(reference))
    }

    /// Passes the records of a tree to `sink`.
    ///
    /// `root` is the tree's root as of the checkpoint `as_of`, unless the scan found a newer one.
    /// Where the root does not lead to the leaves, the sink gets the leaves that the scan found.
    pub(super) fn tree(
        &mut self,
        owner: u32,
        mut root: Option<Child>,
        mut as_of: u64,
        sink: &mut dyn Sink,
    ) -> Flow<Outcome> {
        let mut is_found = false;
        let newest_root = newest_root(self.used_nodes(owner));
        if let Some(found) = newest_root.filter(|found| found.generation > as_of)
            && let Some(child) = self.found_root(found)
        {
            root = Some(child);
            as_of = found.generation;
            is_found = true;
        }
        let newest = self.used_nodes(owner).last().map_or(0, |found| found.generation);
        let mut holes = Holes::default();
        let whole = Expected::root(owner, root.map_or(0, |root| root.count));
        let mut after = 0;
        if newest > as_of {
            // The root that leads to these nodes is lost; an older root would hide them.
            holes.add(&whole, None);
            after = if root.is_none() { as_of } else { 0 };
        } else if let Some(root) = &root {
            self.subtree(root, &whole, Some(root.count), as_of, sink, &mut holes)?;
        }
        if !holes.list.is_empty() {
            self.fill(owner, &holes, after, sink)?;
        }
        Ok(Outcome {
            holes: holes.list,
            as_of,
            is_found,
        })
    }

    pub(super) fn subtree(
        &mut self,
        child: &Child,
        expected: &Expected<'_>,
        count: Option<u64>,
        as_of: u64,
        sink: &mut dyn Sink,
        holes: &mut Holes,
    ) -> Flow<()> {
        let loaded = self.pager.load(&child.pointer, expected, Access::Scan);
        let node = match loaded {
            Ok(node) => node,
            Err(error) => {
                self.report.add_problem(error);
                holes.add(expected, count);
                return Ok(());
            }
        };
        if node.is_leaf() {
            return self.leaf(&node, expected.owner, None, as_of, sink);
        }
        for index in 0..node.len() {
            let (lower, upper) = node.child_fences(index);
            let child = node.child(index);
            let below = Expected {
                owner: expected.owner,
                level: Some(node.level() - 1),
                count: child.count,
                lower: &lower,
                upper: upper.as_deref(),
            };
            self.subtree(&child, &below, Some(child.count), as_of, sink, holes)?;
        }
        Ok(())
    }

    /// Passes the records of a leaf that lie in `part` to the sink.
    fn leaf(
        &mut self,
        node: &Node,
        owner: u32,
        part: Option<&Range>,
        generation: u64,
        sink: &mut dyn Sink,
    ) -> Flow<()> {
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        for index in 0..node.len() {
            node.key_into(index, &mut key);
            if part.is_some_and(|part| !part.contains(&key)) {
                continue;
            }
            bytes.clear();
            let record = node.record(index);
            match value::read(&self.pager.blocks, owner, &record, &mut bytes) {
                Ok(()) => sink.put(&key, &bytes, record.expires, generation)?,
                Err(error) => {
                    // Leaves found by the scan may be outdated, so a missing value is no damage.
                    if part.is_none() {
                        self.report.add_problem(error.covering(&key, Some(&key)));
                    }
                    sink.lose(&key);
                }
            }
        }
        sink.end_leaf()?;
        self.control.leaf(node.len() as u64)
    }

    /// Fills holes from the leaves that the scan found.
    ///
    /// Leaves are applied oldest first, each replacing the records of older ones in its range, so no
    /// list of covered keys is needed. Leaves in free space come before all others: they only stand
    /// in for lost leaves.
    fn fill(&mut self, owner: u32, holes: &Holes, after: u64, sink: &mut dyn Sink) -> Flow<()> {
        let count = self.scanned()?.of(owner).len();
        let order = [true, false]
            .into_iter()
            .flat_map(|is_free| (0..count).map(move |number| (is_free, number)));
        for (is_free, number) in order {
            let found = self.scanned()?.of(owner)[number];
            if found.level() != 0 || found.generation <= after || self.is_free(&found) != is_free {
                continue;
            }
            let Ok(node) = self.source.node(&found) else { continue };
            let range = Range::of(&node);
            for part in holes.parts(&range) {
                sink.clear(&part)?;
                self.leaf(&node, owner, Some(&part), found.generation, sink)?;
            }
        }
        Ok(())
    }

    /// Returns the index, built on first use.
    pub(super) fn scanned(&mut self) -> Flow<&Index> {
        if self.index.is_none() {
            let shift = Some(self.unit_shift);
            let phase = self.control.phase();
            self.control.enter(RecoverPhase::Scanning)?;
            let index = scan(&mut self.source, shift, self.last_generation, &mut self.control)?;
            self.index = Some(index);
            self.control.enter(phase)?;
        }
        Ok(self.index.as_ref().expect("it was made just now"))
    }

    /// Visits the key range, generation and records of each leaf that the scan found, oldest first.
    pub(super) fn history(
        &mut self,
        owner: u32,
        mut visit: impl FnMut(&Range, u64, &[(Vec<u8>, Vec<u8>)]),
    ) -> Flow<()> {
        let count = self.scanned()?.of(owner).len();
        for number in 0..count {
            let found = self.scanned()?.of(owner)[number];
            let Ok(node) = self.source.node(&found) else { continue };
            if !node.is_leaf() {
                continue;
            }
            let mut records = Vec::new();
            for index in 0..node.len() {
                let mut bytes = Vec::new();
                if value::read(&self.pager.blocks, owner, &node.record(index), &mut bytes).is_ok() {
                    records.push((node.key(index), bytes));
                }
            }
            visit(&Range::of(&node), found.generation, &records);
            self.control.leaf(0)?;
        }
        Ok(())
    }
}
