//! Verification: each unit of the file is reachable exactly once, kept, or free (invariant I8), and everything reachable is intact.

use super::{Shared, Version, lock};
use crate::checkpoint::{Extent, Superblock, by_address};
use crate::error::Error;
use crate::tree::walk::Walk;

use super::Writer;

/// What a verification found.
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

pub(super) fn verify(shared: &Shared) -> VerifyReport {
    let writer = lock(&shared.writer);
    let current: std::sync::Arc<Version> = shared.current();
    let mut report = VerifyReport::default();
    let mut extents: Vec<Extent> = writer.space.kept().chain(writer.space.free.iter()).collect();
    if let Some(root) = &writer.superblock.catalog {
        let mut walk = Walk::default();
        walk.tree(&shared.pager, root, 0);
        add(&mut report, walk, &mut extents, "catalog");
        report.entries = 0;
    }
    if let Some(reference) = &writer.superblock.free_map {
        extents.push(Extent {
            start: reference.unit,
            units: u64::from(reference.units),
        });
        report.blocks += 1;
    }
    for (name, collection) in &current.collections {
        if let Some(root) = &collection.root {
            let mut walk = Walk::default();
            walk.tree(&shared.pager, root, collection.id);
            add(&mut report, walk, &mut extents, name);
        }
    }
    // Unreadable subtrees hide their blocks, so the sum only means something when all of them could be read.
    if report.problems.is_empty() {
        check_coverage(&writer, extents, &mut report.problems);
    }
    report
}

fn add(report: &mut VerifyReport, walk: Walk, extents: &mut Vec<Extent>, name: &str) {
    report.blocks += walk.blocks.len() as u64;
    report.nodes += walk.nodes;
    report.entries += walk.records;
    extents.extend(walk.blocks.iter().map(|reference| Extent {
        start: reference.unit,
        units: u64::from(reference.units),
    }));
    let problems = walk.problems.into_iter().map(|error| error.in_collection(name));
    report.problems.extend(problems);
}

fn check_coverage(writer: &Writer, extents: Vec<Extent>, problems: &mut Vec<Error>) {
    let mut end = Superblock::first_data_unit(writer.superblock.unit_shift);
    for extent in by_address(extents) {
        if extent.start < end {
            problems.push(Error::corrupt_at(extent.start, "a unit is used twice"));
        } else if extent.start > end {
            problems.push(Error::corrupt_at(end, "a unit is neither used nor free"));
        }
        end = end.max(extent.start + extent.units);
    }
    if end != writer.space.free.end() {
        problems.push(Error::corrupt_at(end, "the end of the file is neither used nor free"));
    }
}
