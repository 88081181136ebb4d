//! Freezing the newest version, and giving its merge up.

use super::{Frozen, HAS_THREADS, Merging};
use crate::error::Result;
use crate::log::Log;
use crate::node::LeafCell;
use crate::pages::{Draft, Extent};
use crate::state::{Shared, Version, Writer};
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
            for collection in version.collections.values_mut() {
                collection.layers.frozen = std::mem::take(&mut collection.layers.active);
            }
        });
        self.space.freeze();
        let log = self.log.as_ref();
        let unlogged = std::mem::take(&mut self.unlogged);
        // If the log leads from the last checkpoint to this version, it also leads there from any
        // state in between.
        let has_log = log.is_some_and(|log| !log.checkpoint_first) && !unlogged && !self.trees_are_ahead;
        let logged = target.collections.values().filter(|_| has_log);
        let partial = logged.filter(|collection| self.has_durable_tree(collection));
        let frozen_entries: Vec<_> = target
            .collections
            .values()
            .map(|entry| (entry.id, entry.layers.active.len()))
            .collect();
        let mut merging = Merging {
            partial: partial.map(|entry| entry.id).collect(),
            log: log.map_or(self.superblock.log, Log::position),
            frozen: Frozen {
                log_fill: log.map_or(0, Log::fill),
                unlogged,
            },
            entries: frozen_entries.iter().map(|(_, entries)| entries).sum(),
            merged: 0,
            frozen_entries,
            working: target.clone(),
            target,
            order: Vec::new(),
            next: 0,
            run: None,
            draft: Draft::default(),
            written: 0,
            round_bytes: self.round_bytes(shared),
            is_stalled: false,
            paused: None,
            sealing: None,
        };
        merging.order_collections();
        self.merging = Some(merging);
        #[cfg(feature = "testing")]
        {
            self.merges.begun += 1;
        }
        if HAS_THREADS {
            shared.lending.announce();
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
        for collection in newest.collections.values() {
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
            for collection in version.collections.values_mut() {
                collection.layers.thaw();
            }
        });
        Ok(())
    }

    /// Installs what was merged since a transaction began in its state.
    pub(crate) fn catch_up(shared: &Shared, state: &mut Version) {
        let newest = shared.newest();
        state.moves = newest.moves;
        for collection in state.collections.values_mut() {
            if collection.layers.frozen.is_empty() {
                continue;
            }
            let Some(other) = newest.collections.values().find(|other| other.id == collection.id) else {
                continue;
            };
            collection.root = other.root;
            collection.packing = other.packing;
            collection.layers.frozen = other.layers.frozen.clone();
        }
    }
}
