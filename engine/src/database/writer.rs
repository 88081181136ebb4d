//! The single writer: publishes versions and makes checkpoints.

use std::sync::Arc;

use super::{Collection, Shared, Version};
use crate::block::{PageId, Pointer};
use crate::checkpoint::{BlockWriter, Extent, Failure, Quarantine, Space, Superblock, Written, cut_tail, seal};
use crate::error::{Error, Result};
use crate::node::Child;
use crate::transaction::{Draft, into_pages};
use crate::tree::Editor;

/// A page or redirection that only snapshots with versions `first..=last` may still name.
struct Kept {
    id: PageId,
    first: u64,
    last: u64,
}

/// State of the writer, behind the writer lock.
pub(crate) struct Writer {
    /// The newest durable superblock.
    pub superblock: Superblock,
    /// The version it holds.
    pub durable: Arc<Version>,
    pub space: Space,
    pub poisoned: Option<String>,
    pub checkpoints: u64,
    kept: Vec<Kept>,
}

/// What a successful checkpoint leaves to do in memory.
struct Done {
    superblock: Superblock,
    written: Vec<Written>,
    left: Vec<Extent>,
}

impl Writer {
    pub(crate) fn new(superblock: Superblock, durable: Arc<Version>, space: Space) -> Self {
        Self {
            superblock,
            durable,
            space,
            poisoned: None,
            checkpoints: 0,
            kept: Vec::new(),
        }
    }

    pub(crate) fn is_durable(&self, state: &Version) -> bool {
        self.durable.version == state.version
    }

    pub(crate) fn take_collection_id(&mut self) -> Result<u32> {
        let id = self.superblock.next_collection_id;
        self.superblock.next_collection_id = id.checked_add(1).ok_or_else(|| Error::InvalidArgument {
            what: "all collection ids are used up; copy the data into a new database".to_owned(),
        })?;
        Ok(id)
    }

    /// Returns extents that were written but never published. After a failed superblock write the disk may refer to them.
    pub(crate) fn give_back(&mut self, extents: Vec<Extent>) {
        if self.poisoned.is_some() {
            return;
        }
        for extent in extents {
            let freed = self.space.free.free(extent);
            debug_assert!(freed.is_ok(), "an extent that was allocated can be freed");
        }
    }

    /// Makes a draft visible without making it durable.
    pub(crate) fn publish(&mut self, shared: &Shared, state: Version, draft: &mut Draft) {
        for (number, node) in into_pages(draft) {
            shared.pager.insert_dirty(number, node);
        }
        self.space.retired.append(&mut draft.retired_extents);
        draft.allocated.clear();
        self.install(shared, state, draft);
    }

    /// Replaces the current version and forgets the pages that no snapshot can name any more.
    fn install(&mut self, shared: &Shared, state: Version, draft: &mut Draft) {
        let mut published = shared.published();
        let last = published.current.version;
        published.current = Arc::new(state);
        self.kept.extend(draft.retired_pages.drain(..).map(|page| Kept {
            id: PageId::memory(page.number),
            first: page.stamp,
            last,
        }));
        self.kept.retain(|kept| {
            let needed = published.any_between(kept.first, kept.last);
            if !needed {
                shared.pager.remove(kept.id);
            }
            needed
        });
    }

    /// Makes `state`, whose new pages are in `draft` or dirty, durable and visible. On failure nothing changes, except that the
    /// writer may be poisoned.
    pub(crate) fn checkpoint(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        let mut allocated = Vec::new();
        match self.write_checkpoint(shared, state, draft, &mut allocated) {
            Ok(done) => {
                self.adopt(shared, state, draft, done)?;
                Ok(())
            }
            Err(Failure::Undone(error)) => {
                self.give_back(allocated);
                Err(error)
            }
            Err(Failure::Unknown(error)) => {
                self.poisoned = Some(error.to_string());
                Err(error)
            }
        }
    }

    fn write_checkpoint(
        &mut self,
        shared: &Shared,
        state: &mut Version,
        draft: &Draft,
        allocated: &mut Vec<Extent>,
    ) -> std::result::Result<Done, Failure> {
        let generation = self.superblock.generation + 1;
        let mut catalog = self.superblock.catalog;
        let mut catalog_draft = Draft::new(state.version);
        let compression = shared.config.compression;
        let (written, roots) = {
            let empty = Draft::default();
            let free = &mut self.space.free;
            let mut writer = BlockWriter::new(&shared.pager, [draft, &empty], free, generation, compression);
            let roots = write_roots(&mut writer, state);
            let finished = roots.and_then(|roots| writer.finish().map(|()| roots));
            allocated.append(&mut writer.allocated);
            (std::mem::take(&mut writer.written), finished?)
        };
        for (name, root) in roots {
            state.collections.get_mut(&name).expect("it was listed just now").root = Some(root);
        }
        let edited = self.edit_catalog(shared, state, &mut catalog, &mut catalog_draft);
        allocated.append(&mut catalog_draft.allocated);
        edited?;
        let mut left: Vec<Extent> = self.space.retired.clone();
        left.extend(&draft.retired_extents);
        left.extend(&catalog_draft.retired_extents);
        left.extend(self.superblock.free_map.map(|reference| Extent {
            start: reference.unit,
            units: u64::from(reference.units),
        }));
        let empty = Draft::default();
        let free = &mut self.space.free;
        let mut writer = BlockWriter::new(&shared.pager, [&catalog_draft, &empty], free, generation, compression);
        let mut result = Ok(None);
        if let Some(root) = catalog {
            match writer.write_tree(root, 0) {
                Ok(root) => catalog = Some(root),
                Err(error) => result = Err(error),
            }
        }
        if result.is_ok() {
            result = writer.write_free_map(&self.space.quarantine, &left);
        }
        let result = result.and_then(|free_map| writer.finish().map(|()| free_map));
        allocated.append(&mut writer.allocated);
        let mut all_written = written;
        all_written.append(&mut writer.written);
        let superblock = Superblock {
            generation,
            version: state.version,
            catalog,
            free_map: result?,
            file_units: self.space.free.end(),
            ..self.superblock.clone()
        };
        seal(shared.pager.blocks.file(), &superblock)?;
        Ok(Done {
            superblock,
            written: all_written,
            left,
        })
    }

    /// Brings the catalog's tree in line with the collections of `state`.
    fn edit_catalog(
        &mut self,
        shared: &Shared,
        state: &Version,
        catalog: &mut Option<Child>,
        draft: &mut Draft,
    ) -> Result<()> {
        let mut editor = Editor {
            pager: &shared.pager,
            draft,
            free: &mut self.space.free,
            root: catalog,
            owner: 0,
            generation: self.superblock.generation + 1,
            compression: shared.config.compression,
            limits: shared.config.limits,
        };
        for name in self.durable.collections.keys() {
            if !state.collections.contains_key(name) {
                editor.delete(name.as_bytes())?;
            }
        }
        for (name, collection) in &state.collections {
            if self.durable.collections.get(name) != Some(collection) {
                editor.set(name.as_bytes(), &collection.encode())?;
            }
        }
        Ok(())
    }

    /// Takes over a checkpoint that is durable.
    fn adopt(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft, done: Done) -> Result<()> {
        let generation = done.superblock.generation;
        self.superblock = done.superblock;
        self.checkpoints += 1;
        self.space.retired.clear();
        draft.allocated.clear();
        draft.retired_extents.clear();
        draft.pages.clear();
        self.space.quarantine.push_back(Quarantine {
            generation,
            version: state.version,
            extents: done.left,
        });
        self.durable = Arc::new(state.clone());
        let mut redirected = Vec::new();
        for page in done.written {
            if shared.pager.dirty_page(page.number).is_some() {
                shared.pager.redirect(page.number, page.reference);
                redirected.push(Kept {
                    id: PageId::memory(page.number),
                    first: page.stamp,
                    last: state.version,
                });
            }
            shared.pager.insert_clean(page.reference.unit, page.node);
        }
        self.kept.append(&mut redirected);
        self.install(shared, state.clone(), draft);
        let oldest = shared.published().oldest();
        self.space.release(&shared.pager, generation, oldest)?;
        cut_tail(shared.pager.blocks.file(), &self.superblock);
        Ok(())
    }
}

/// Writes the dirty trees of all collections; returns their new roots.
fn write_roots(writer: &mut BlockWriter<'_>, state: &Version) -> Result<Vec<(String, Child)>> {
    let mut roots = Vec::new();
    for (name, Collection { id, root, .. }) in &state.collections {
        if let Some(root) = root
            && matches!(root.pointer, Pointer::Memory(_))
        {
            roots.push((name.clone(), writer.write_tree(*root, *id)?));
        }
    }
    Ok(roots)
}
