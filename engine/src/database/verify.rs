//! Verification: each unit of the file is reachable exactly once, kept, or free (invariant I8), and everything reachable is intact.

use super::{Shared, Version, lock};
use crate::checkpoint::{Extent, Superblock, by_address};
use crate::error::Error;
use crate::transaction::expiry;
use crate::tree::read;
use crate::tree::walk::Walk;
use std::ops::ControlFlow;
use std::sync::Arc;

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

/// How far a verification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Nodes checked.
    pub nodes: u64,
    /// Records in them.
    pub entries: u64,
    /// Records in all.
    pub total_entries: u64,
}

pub(super) fn verify(
    shared: &Shared,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Option<VerifyReport> {
    let writer = lock(&shared.writer);
    let newest: Arc<Version> = shared.newest();
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
    let total_entries = newest.collections.values().map(super::Collection::count).sum();
    for (name, collection) in &newest.collections {
        let Some(root) = &collection.root else { continue };
        let (nodes_before, entries_before) = (report.nodes, report.entries);
        let mut tick = |nodes, entries| {
            progress(VerifyProgress {
                nodes: nodes_before + nodes,
                entries: entries_before + entries,
                total_entries,
            })
        };
        let hints = newest.collections.get(&expiry::hints_of(collection.id));
        let has_hint = |expires, key: &[u8]| {
            let hint = expiry::hint(expires, key);
            let found = hints.map(|hints| read::find(&shared.pager, hints.root.as_ref(), hints.id, &hint));
            Ok(found.transpose()?.flatten().is_some())
        };
        let mut walk = Walk {
            tick: Some(&mut tick),
            has_hint: (hints.is_some()).then_some(&has_hint),
            ..Walk::default()
        };
        walk.tree(&shared.pager, root, collection.id);
        if walk.is_cancelled {
            return None;
        }
        add(&mut report, walk, &mut extents, name);
    }
    for (name, collection) in &newest.collections {
        if name.starts_with(expiry::HIDDEN) {
            report.entries = report.entries.saturating_sub(collection.count());
        }
    }
    // Unreadable subtrees hide their blocks, so the sum only means something when all of them could be read.
    if report.problems.is_empty() {
        check_coverage(&writer, extents, &mut report.problems);
    }
    Some(report)
}

fn add(report: &mut VerifyReport, walk: Walk<'_>, extents: &mut Vec<Extent>, name: &str) {
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
