//! Freezing the newest version, and giving its merge up.

use super::{Frozen, HAS_THREADS, Merging, Part};
use crate::error::Result;
use crate::log::Log;
use crate::memtable::Layers;
use crate::node::LeafCell;
use crate::pages::{Draft, Extent};
use crate::state::{Shared, Summary, Version, Writer};
use crate::tree::value;

impl Writer {
    /// Freezes the newest version. No version may be frozen already.
    #[inline(never)]
    pub(super) fn freeze(&mut self, shared: &Shared) -> Result<()> {
        debug_assert!(self.frozen().is_none(), "one version is frozen at a time");
        self.switch_log(shared)?;
        // Otherwise, versions staged for a flush that has since ended would be absorbed into a copy
        // of the active memtables.
        shared.publish_durable();
        let newest = shared.newest().version;
        shared.published().relayout(newest, Version::absorb);
        let target = (*shared.newest()).clone();
        shared.published().relayout(newest, |version| {
            version.change(Summary::has_active, |layers| {
                layers.frozen = std::mem::take(&mut layers.active);
            });
        });
        self.space.freeze();
        let log = self.log.as_ref();
        let unlogged = std::mem::take(&mut self.unlogged);
        // If the log leads from the last checkpoint to this version, it also leads there from any
        // state in between.
        let has_log = log.is_some_and(|log| !log.checkpoint_first) && !unlogged && !self.trees_are_ahead;
        // Those of which a partial checkpoint may hold part come first.
        let (mut order, mut whole) = (Vec::new(), Vec::new());
        for (_, collection) in target.collections.selected(Summary::has_active) {
            let part = Part {
                id: collection.id,
                entries: collection.layers.active.len(),
                is_partial: has_log && self.has_durable_tree(collection),
            };
            if part.is_partial { &mut order } else { &mut whole }.push(part);
        }
        order.append(&mut whole);
        self.merging = Some(Merging {
            log: log.map_or(self.superblock.log, Log::position),
            frozen: Frozen {
                log_fill: log.map_or(0, Log::fill),
                unlogged,
            },
            entries: order.iter().map(|part| part.entries).sum(),
            merged: 0,
            order,
            working: target.clone(),
            target,
            next: 0,
            run: None,
            draft: Draft::default(),
            written: 0,
            round_bytes: self.round_bytes(shared),
            is_stalled: false,
            paused: None,
            sealing: None,
        });
        #[cfg(feature = "testing")]
        {
            self.merges.begun += 1;
        }
        if HAS_THREADS {
            shared.merge_thread.announce();
        }
        Ok(())
    }

    /// Abandons the merge: frozen entries that are not merged become part of the active memtables
    /// again.
    ///
    /// # Errors
    /// Errors from reading the index of a long value that was replaced; nothing has changed then.
    #[inline(never)]
    pub(crate) fn thaw(&mut self, shared: &Shared) -> Result<()> {
        self.recall(shared)?;
        let Some(mut merging) = self.merging.take() else {
            return Ok(());
        };
        let mut replaced = Vec::new();
        let mut newest = (*shared.newest()).clone();
        newest.absorb();
        for (_, collection) in newest.collections.selected(Summary::has_frozen) {
            for reference in collection.layers.replaced() {
                let references = value::references(&shared.pager.blocks, collection.id, &LeafCell::decode(reference));
                match references {
                    Ok(references) => replaced.extend(references.iter().map(Extent::of)),
                    Err(error) => {
                        self.merging = Some(merging);
                        return Err(error);
                    }
                }
            }
        }
        #[cfg(feature = "testing")]
        {
            self.merges.abandoned += 1;
        }
        let taken = merging.reset();
        self.give_back(shared, taken);
        self.unlogged |= merging.frozen.unlogged;
        self.space.thaw();
        self.space.commit(std::iter::empty(), replaced.into_iter());
        shared.published().relayout(merging.target.version, |version| {
            version.absorb();
            version.change(Summary::has_frozen, Layers::thaw);
        });
        Ok(())
    }

    /// Installs trees merged since a transaction began in its state.
    pub(crate) fn catch_up(shared: &Shared, state: &mut Version) {
        let newest = shared.newest();
        state.moves = newest.moves;
        state.install(&newest, |layers| &layers.frozen);
    }
}
