//! Bringing what the memtables hold into the trees.

use super::{Shared, Version, Writer};
use crate::block::PageId;
use crate::error::Result;
use crate::memtable::{Layers, Memtable, MergedChanges};
use crate::pages::Draft;
use crate::tree::Editor;
use crate::tree::merge::Merge;

impl Writer {
    /// Merges the memtables of all collections of `state` into their trees. The new nodes are the draft's spilled blocks, which only a checkpoint makes
    /// part of the database; without one, giving them back undoes everything. After an error the state is unusable.
    #[inline(never)]
    pub(crate) fn settle(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        if state
            .collections
            .values()
            .all(|collection| collection.layers.is_empty())
        {
            return Ok(());
        }
        // A snapshot of this version may still read the old blocks.
        state.moves += 1;
        let generation = self.superblock.generation + 1;
        for (name, collection) in state.collections.iter_mut_from("") {
            let Layers { fresh, active, frozen } = std::mem::take(&mut collection.layers);
            for layers in [vec![frozen], vec![active, fresh]] {
                let entries: usize = layers.iter().map(Memtable::most_entries).sum();
                if entries == 0 {
                    continue;
                }
                let mut root = collection.root;
                let mut editor = Editor {
                    pager: &shared.pager,
                    draft,
                    free: &self.space.free,
                    root: &mut root,
                    owner: collection.id,
                    generation,
                    compression: shared.config.compression,
                    limits: shared.config.limits,
                };
                let mut changes = MergedChanges::new(layers);
                let merge = Merge::new(collection.root, entries);
                let merged = merge.run(&mut editor, &mut changes);
                merged.map_err(|error| error.in_collection(name))?;
                collection.root = root;
            }
        }
        // Nodes of one merge that the next one replaced.
        for extent in draft.released.drain(..) {
            shared.pager.remove(PageId::disk(extent.start));
            self.space.free.free(extent)?;
        }
        Ok(())
    }
}
