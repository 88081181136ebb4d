//! Verification: each unit of the file is reachable exactly once, quarantined, or free (invariant I8), and
//! everything reachable is intact.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::node::{Child, LeafCell};
use crate::pages::{Extent, Pager, Superblock, by_address};
use crate::snapshot::Snapshot;
use crate::state::{Merging, Shared, Version, Writer, expiry};
use crate::tree::value;
use crate::tree::walk::{Visit, Walk};

mod indexes;

use indexes::IndexCheck;

/// Minimum bytes counted for a node or a value.
const MIN_STEP_BYTES: u64 = 512;

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Blocks read and checked.
    pub blocks: u64,
    /// Nodes among them.
    pub nodes: u64,
    /// Records in them.
    pub entries: u64,
    /// Damage, in the order it was found.
    pub problems: Vec<Error>,
}

impl VerifyReport {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Nodes checked.
    pub nodes: u64,
    /// Records in them.
    pub entries: u64,
    /// Total number of records.
    pub total_entries: u64,
}

pub(super) fn verify(
    shared: &Shared,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Option<VerifyReport> {
    let mut writer = shared.lock_writer();
    // A failure here ends all writing; the next write reports it.
    let _ = writer.recall(shared);
    let newest: Arc<Version> = shared.newest();
    let mut report = VerifyReport::default();
    let mut extents = bookkeeping(shared, &writer, &mut report);
    let total_entries = total_entries(&shared.pager, &newest);
    for (name, root, id) in trees(&newest) {
        let mut walk = Walk::new(Visit::All, &root, id);
        while !walk.is_at_end() {
            let now = VerifyProgress {
                nodes: report.nodes + walk.nodes,
                entries: report.entries + walk.records,
                total_entries,
            };
            if progress(now).is_break() {
                return None;
            }
            step(shared, &newest, id, &mut walk);
        }
        add(&mut report, walk, &mut extents, &name);
    }
    add_memory(&shared.pager, &newest, &mut report, &mut extents);
    check_memory(&shared.pager, &newest, &mut report.problems);
    forget_hidden(&shared.pager, &newest, &mut report);
    let is_sound = report.problems.is_empty();
    let mut check = IndexCheck::new(&newest, shared.config.clock.now(), is_sound);
    while check.step(&shared.pager, &newest, &mut report.problems) {
        let now = VerifyProgress {
            nodes: report.nodes,
            entries: report.entries,
            total_entries,
        };
        if progress(now).is_break() {
            return None;
        }
    }
    // Unreadable subtrees hide their blocks, so coverage is meaningful only if everything could be
    // read.
    if report.problems.is_empty() {
        check_coverage(shared, &writer, extents, &mut report.problems);
    }
    Some(report)
}

/// A verification in progress. It checks a snapshot, so that commits can proceed between slices,
/// and finally how the file is used.
///
/// ```
/// # use std::sync::Arc;
/// # use mangrove_engine::{Database, Options, storage::MemoryStorage};
/// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// let mut verification = database.snapshot().verification();
/// let report = loop {
///     if let Some(report) = verification.advance(1 << 20)? {
///         break report;
///     }
/// };
/// assert!(report.is_ok());
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub struct Verification {
    snapshot: Snapshot,
    /// Trees still to visit, the next one last.
    trees: Vec<(String, Child, u32)>,
    walk: Option<Walk>,
    /// Set once all trees have been visited.
    indexes: Option<IndexCheck>,
    total_entries: u64,
    report: VerifyReport,
}

impl Snapshot {
    /// Starts a verification of this state in slices. The verification keeps the state's space
    /// until it is dropped.
    #[must_use]
    pub fn verification(self) -> Verification {
        let (shared, version) = self.parts();
        let mut trees = trees(version);
        trees.reverse();
        let total_entries = total_entries(&shared.pager, version);
        Verification {
            snapshot: self,
            trees,
            walk: None,
            indexes: None,
            total_entries,
            report: VerifyReport::default(),
        }
    }
}

impl Verification {
    /// Checks about `bytes` more bytes of the file; returns the report at the end.
    ///
    /// Checks at least one node or value. The verification is spent once it has returned the
    /// report. The last slice visits all inner nodes, and leaves with values in their own blocks,
    /// to check that each unit of the file is used once or free, and compares the memtables with the
    /// layers below them. It waits for the writer.
    ///
    /// # Errors
    /// [`Error::Stale`] in a database read beside a writer. Damage is no error; the report lists
    /// it.
    pub fn advance(&mut self, bytes: u64) -> Result<Option<VerifyReport>> {
        let (shared, version) = self.snapshot.parts();
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        let mut done = 0;
        while done < bytes.max(1) {
            let Some(walk) = &mut self.walk else {
                let Some((_, root, id)) = self.trees.last() else {
                    let is_sound = self.report.problems.is_empty();
                    let now = self.snapshot.now();
                    let check = self
                        .indexes
                        .get_or_insert_with(|| IndexCheck::new(version, now, is_sound));
                    if check.step(&shared.pager, version, &mut self.report.problems) {
                        done += MIN_STEP_BYTES;
                        continue;
                    }
                    add_memory(&shared.pager, version, &mut self.report, &mut Vec::new());
                    check_memory(&shared.pager, version, &mut self.report.problems);
                    forget_hidden(&shared.pager, version, &mut self.report);
                    if self.report.problems.is_empty() {
                        check_file(shared, &mut self.report);
                    }
                    check_stale(shared, &self.report)?;
                    return Ok(Some(std::mem::take(&mut self.report)));
                };
                self.walk = Some(Walk::new(Visit::All, root, *id));
                continue;
            };
            let Some((name, _, id)) = self.trees.last() else {
                continue;
            };
            step(shared, version, *id, walk);
            self.report.blocks += walk.blocks.len() as u64;
            // Their addresses are useless here: other blocks may have been freed meanwhile.
            let units: u64 = walk.blocks.drain(..).map(|(block, _)| u64::from(block.units)).sum();
            done += (units * unit_bytes).max(MIN_STEP_BYTES);
            if walk.is_at_end() {
                if let Some(walk) = self.walk.take() {
                    add(&mut self.report, walk, &mut Vec::new(), name);
                }
                self.trees.pop();
            }
        }
        Ok(None)
    }

    /// Progress so far.
    #[must_use]
    pub fn progress(&self) -> VerifyProgress {
        let (nodes, entries) = self.walk.as_ref().map_or((0, 0), |walk| (walk.nodes, walk.records));
        VerifyProgress {
            nodes: self.report.nodes + nodes,
            entries: self.report.entries + entries,
            total_entries: self.total_entries,
        }
    }
}

impl std::fmt::Debug for Verification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verification")
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

/// Fails if a writer beside this reader has overwritten blocks that were read.
pub(super) fn check_stale(shared: &Shared, report: &VerifyReport) -> Result<()> {
    match report.problems.first() {
        Some(problem) if shared.or_stale(problem.clone()) == Error::Stale => Err(Error::Stale),
        _ => Ok(()),
    }
}

/// Checks how the file is used now, without checking the content of the blocks again.
fn check_file(shared: &Shared, report: &mut VerifyReport) {
    let mut writer = shared.lock_writer();
    // A failure here ends all writing; the next write reports it.
    let _ = writer.recall(shared);
    let mut found = VerifyReport::default();
    let mut extents = bookkeeping(shared, &writer, &mut found);
    report.blocks += found.blocks;
    report.nodes += found.nodes;
    let newest = shared.newest();
    for (name, root, id) in trees(&newest) {
        let walk = Walk::new(Visit::Extents, &root, id).run(&shared.pager, None);
        add(&mut found, walk, &mut extents, &name);
    }
    add_memory(&shared.pager, &newest, &mut found, &mut extents);
    if found.problems.is_empty() {
        check_coverage(shared, &writer, extents, &mut found.problems);
    }
    report.problems = found.problems;
}

/// Extents that no collection reaches: quarantined, free, staged, catalog and free map. Checks the catalog.
fn bookkeeping(shared: &Shared, writer: &Writer, report: &mut VerifyReport) -> Vec<Extent> {
    let mut extents: Vec<Extent> = writer
        .space
        .unreleased()
        .chain(writer.space.free.unreferenced())
        .collect();
    extents.extend(writer.merging.iter().flat_map(Merging::taken));
    if let Some(root) = &writer.superblock.catalog {
        let walk = Walk::new(Visit::All, root, 0).run(&shared.pager, None);
        add(report, walk, &mut extents, "catalog");
        report.entries = 0;
    }
    if let Some(reference) = &writer.superblock.free_map {
        extents.push(Extent {
            start: reference.unit,
            units: u64::from(reference.units),
        });
        report.blocks += 1;
    }
    extents
}

/// Accounts for the memtables: the records they add, and value blocks to which only they refer.
fn add_memory(pages: &Pager, version: &Version, report: &mut VerifyReport, extents: &mut Vec<Extent>) {
    for (name, collection) in version.collections.iter() {
        let in_tree = collection.root.map_or(0, |root| root.count);
        report.entries = (report.entries + collection.count(pages)).saturating_sub(in_tree);
        let mut layers = collection.layers.clone();
        layers.absorb();
        for memtable in layers.all() {
            for entry in memtable.entries() {
                let Some(cell) = entry.payload.map(LeafCell::decode) else {
                    continue;
                };
                match value::references(&pages.blocks, collection.id, &cell) {
                    Ok(references) => extents.extend(references.iter().map(|reference| Extent {
                        start: reference.unit,
                        units: u64::from(reference.units),
                    })),
                    Err(error) => report.problems.push(error.in_collection(name)),
                }
            }
        }
    }
}

/// Checks what the memtables' entries know about the layers below them, on which counts and merges
/// rely.
fn check_memory(pages: &Pager, version: &Version, problems: &mut Vec<Error>) {
    for (name, collection) in version.collections.iter() {
        if let Err(error) = collection.records(pages).check_deltas() {
            problems.push(error.in_collection(name));
        }
    }
}

/// Name, root and id of every collection that has records.
fn trees(version: &Version) -> Vec<(String, Child, u32)> {
    let collections = version.collections.iter();
    let filled = collections.filter_map(|(name, collection)| Some((name.clone(), collection.root?, collection.id)));
    filled.collect()
}

fn total_entries(pages: &Pager, version: &Version) -> u64 {
    version
        .collections
        .values()
        .map(|collection| collection.count(pages))
        .sum()
}

/// Subtracts the records of the engine's own collections, which are not the user's.
fn forget_hidden(pages: &Pager, version: &Version, report: &mut VerifyReport) {
    for (name, collection) in version.collections.iter() {
        if name.starts_with(expiry::HIDDEN) {
            report.entries = report.entries.saturating_sub(collection.count(pages));
        }
    }
}

fn step(shared: &Shared, version: &Version, id: u32, walk: &mut Walk) {
    let hints = version.collections.get(&expiry::hints_of(id));
    let layers = version
        .collections
        .values()
        .find(|collection| collection.id == id)
        .map(|collection| &collection.layers);
    let has_hint = |expires, key: &[u8]| {
        // A record that a memtable replaces or removes may have lost its hint already.
        if layers.is_some_and(|layers| layers.get(key).is_some()) {
            return Ok(true);
        }
        let hint = expiry::hint(expires, key);
        let found = hints.map(|hints| hints.records(&shared.pager).find(&hint));
        Ok(found.transpose()?.flatten().is_some())
    };
    walk.step(&shared.pager, (hints.is_some()).then_some(&has_hint));
}

fn add(report: &mut VerifyReport, walk: Walk, extents: &mut Vec<Extent>, name: &str) {
    report.blocks += walk.blocks.len() as u64;
    report.nodes += walk.nodes;
    report.entries += walk.records;
    extents.extend(walk.blocks.iter().map(|(reference, _)| Extent {
        start: reference.unit,
        units: u64::from(reference.units),
    }));
    let problems = walk.problems.into_iter().map(|error| error.in_collection(name));
    report.problems.extend(problems);
}

fn check_coverage(shared: &Shared, writer: &Writer, extents: Vec<Extent>, problems: &mut Vec<Error>) {
    // If writing a superblock failed, the extents it may refer to are not reused until the next open.
    let may_leak = shared.flush.failure().is_some();
    let mut end = Superblock::first_data_unit(writer.superblock.unit_shift);
    for extent in by_address(extents) {
        if extent.start < end {
            problems.push(Error::corrupt_at(extent.start, "a unit is used twice"));
        } else if extent.start > end && !may_leak {
            problems.push(Error::corrupt_at(end, "a unit is neither used nor free"));
        }
        end = end.max(extent.start + extent.units);
    }
    if end != writer.space.free.end() && !may_leak {
        problems.push(Error::corrupt_at(end, "the end of the file is neither used nor free"));
    }
}

impl Database {
    /// Reads and checks every block that the newest version reaches.
    ///
    /// Checks checksums, key order, fence keys, counts, and that each unit of the file is used
    /// exactly once or free. Waits for the writer. O(size of the database).
    ///
    /// # Errors
    /// Only what prevents the verification, such as [`Error::Stale`] beside a writer; the report
    /// lists damage.
    pub fn verify(&self) -> Result<VerifyReport> {
        let report = self.verify_with(&mut |_| ControlFlow::Continue(()))?;
        Ok(report.unwrap_or_default())
    }

    /// As [`verify`](Self::verify), with progress reports.
    ///
    /// `progress` is called before each node and each value outside a node. If it breaks, the
    /// verification ends without a report.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_with(
        &self,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) -> Result<Option<VerifyReport>> {
        let report = verify(&self.shared, progress);
        if let Some(report) = &report {
            check_stale(&self.shared, report)?;
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use crate::{Durability, Options};

    #[test]
    fn a_memtable_that_disagrees_with_its_tree_is_reported() {
        let database = Database::open(Arc::new(MemoryStorage::new()), Options::default()).unwrap();
        for key in [b"a", b"b"] {
            database.set("letters", key, b"1", Durability::Relaxed).unwrap();
        }
        let reports = || {
            let whole = database.verify().unwrap();
            let slices = database.snapshot().verification().advance(u64::MAX).unwrap();
            [whole, slices.unwrap()]
        };
        for report in reports() {
            assert_eq!(report.problems, []);
        }
        let mut version = Version::clone(&database.shared.newest());
        let collection = version.collections.get_mut("letters").unwrap();
        // As if a merge had lost "c" after it was looked up.
        collection.layers.active.put(b"c", None, Some(true));
        database.shared.published().install(Arc::new(version));
        for report in reports() {
            assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
            let text = report.problems[0].to_string();
            assert!(
                text.contains("disagree about a record") && text.contains("letters"),
                "{text}"
            );
        }
    }
}
