//! The single writer: publishes versions and makes checkpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Collection, Published, Shared, Version};
use crate::block::{PageId, Pointer};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::node::Child;
use crate::pages::{
    BlockWriter, Draft, Extent, Failure, Quarantine, RetiredPage, Space, Superblock, Written, cut_tail, seal,
};
use crate::tree::{Editor, ahead};

/// A commit writes at least this much ahead of the next checkpoint, if anything.
const MIN_AHEAD_BYTES: usize = 256 << 10;
/// And at most this much.
const MAX_AHEAD_BYTES: usize = 1 << 20;

/// What was written ahead is flushed in pieces of this size: a checkpoint that had to flush all of it would take too long.
const MAX_UNFLUSHED_BYTES: u64 = 4 << 20;

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
    pub log: Option<Log>,
    /// Commits since the checkpoint are missing from the log, so that only a checkpoint makes them durable.
    pub unlogged: bool,
    pub checkpoints: u64,
    /// Where writing ahead goes on: owner of a tree and a key in it.
    ahead: ahead::Position,
    /// Bytes of leaves that should have been written ahead and were not.
    ahead_due: usize,
    /// Bytes that are not written ahead after a failure, so that a full disk does not make every commit try.
    ahead_pause: usize,
    /// Bytes that were written ahead and not flushed since.
    ahead_unflushed: u64,
    /// Buffers that are kept between commits.
    pub payload: Vec<u8>,
    pub record: Vec<u8>,
    /// Collections whose catalog entries the next checkpoint writes again though they are as they were.
    pub rewritten_entries: BTreeSet<String>,
    /// The storage refused the room that a commit asked for.
    pub is_full: bool,
    /// Records were removed since what that gave up was made usable.
    pub has_removed: bool,
    kept: Vec<Kept>,
    /// Number of kept pages after they were last looked through.
    kept_before: usize,
}

/// What a successful checkpoint leaves to do in memory.
struct Done {
    superblock: Superblock,
    written: Vec<Written>,
    left: Vec<Extent>,
}

impl Writer {
    pub(crate) fn new(superblock: Superblock, durable: Arc<Version>, space: Space, log: Option<Log>) -> Self {
        Self {
            superblock,
            durable,
            space,
            log,
            unlogged: false,
            checkpoints: 0,
            ahead: None,
            ahead_due: 0,
            ahead_pause: 0,
            ahead_unflushed: 0,
            payload: Vec::new(),
            record: Vec::new(),
            rewritten_entries: BTreeSet::new(),
            is_full: false,
            has_removed: false,
            kept: Vec::new(),
            kept_before: 0,
        }
    }

    pub(crate) fn take_collection_id(&mut self) -> Result<u32> {
        let id = self.superblock.next_collection_id;
        self.superblock.next_collection_id = id.checked_add(1).ok_or_else(|| Error::InvalidArgument {
            what: "all collection ids are used up; copy the data into a new database".to_owned(),
        })?;
        Ok(id)
    }

    /// A collection with this id exists.
    pub(crate) fn reserve_collection_id(&mut self, id: u32) {
        let next = &mut self.superblock.next_collection_id;
        *next = (*next).max(id.saturating_add(1));
    }

    /// Returns extents that were written but never published. After a failed superblock write the disk may refer to them.
    pub(crate) fn give_back(&mut self, shared: &Shared, extents: Vec<Extent>) {
        if shared.flush.failure().is_some() {
            return;
        }
        for extent in extents {
            shared.pager.remove(PageId::disk(extent.start));
            let freed = self.space.free.free(extent);
            debug_assert!(freed.is_ok(), "an extent that was allocated can be freed");
        }
        // What could not be written lies behind the file's end and is no room.
        self.space.free.trim_end();
    }

    /// Makes a draft the newest version. It is visible at once unless `needs_flush` or a version before it has to be flushed first;
    /// returns whether it is visible.
    pub(crate) fn stage(&mut self, shared: &Shared, state: Version, draft: &mut Draft, needs_flush: bool) -> bool {
        for (number, node) in draft.pages.drain() {
            shared.pager.insert_dirty(number, node);
        }
        draft.bytes = 0;
        let mut published = shared.published();
        if published.is_unwatched() {
            self.space.release_ahead(&shared.pager);
            if !needs_flush {
                // Nobody is going to read these pages again.
                for extent in &draft.retired_extents {
                    shared.pager.remove(PageId::disk(extent.start));
                }
            }
        }
        self.space.retire(draft.retired_extents.drain(..));
        draft.allocated.clear();
        let last = published.newest().version;
        let visible = published.stage(Arc::new(state), needs_flush);
        self.keep(shared, &published, last, draft.retired_pages.drain(..));
        drop(published);
        if visible {
            shared.notify();
        }
        visible
    }

    /// Forgets pages that versions up to `last` used, as far as no version or snapshot can name them.
    fn keep(&mut self, shared: &Shared, published: &Published, last: u64, retired: impl Iterator<Item = RetiredPage>) {
        let oldest_visible = published.current.version;
        let needed = |first, last| last >= oldest_visible || published.any_between(first, last);
        for page in retired {
            let id = PageId::memory(page.number);
            if needed(page.stamp, last) {
                self.kept.push(Kept {
                    id,
                    first: page.stamp,
                    last,
                });
            } else {
                shared.pager.remove(id);
            }
        }
        // With a long-lived snapshot the list can be long; looking through it each time would make commits slow.
        if self.kept.len() > 2 * self.kept_before + 32 || (published.snapshots() == 0 && !self.kept.is_empty()) {
            self.kept.retain(|kept| {
                let needed = needed(kept.first, kept.last);
                if !needed {
                    shared.pager.remove(kept.id);
                }
                needed
            });
            self.kept_before = self.kept.len();
        }
    }

    /// Writes some dirty leaves ahead of the next checkpoint once they are many or the log is half used, in proportion to what the last commit
    /// added, so that no commit has to write all of them. `record_bytes` is what it added to the log.
    pub(crate) fn write_ahead_if_due(&mut self, shared: &Shared, dirty_before: usize, record_bytes: usize) {
        let dirty = shared.pager.dirty_bytes();
        let max_dirty = shared.config.max_dirty_bytes();
        let mut due = 0;
        // With more than the bound a commit has to be a checkpoint.
        if dirty > max_dirty / 6 * 5 {
            due = dirty.saturating_sub(dirty_before) / 4 * 5;
        }
        if let Some(room) = self.log.as_ref().and_then(Log::room_when_half_used) {
            due = due.max(2 * dirty / (room / record_bytes.max(1)).max(1));
        }
        let pause = self.ahead_pause.min(due);
        self.ahead_pause -= pause;
        due -= pause;
        // Each slice copies the inner nodes above its leaves, so it should have more than a few.
        self.ahead_due += due;
        if self.ahead_due > (max_dirty / 32).min(MIN_AHEAD_BYTES) && shared.flush.failure().is_none() {
            let budget = std::mem::take(&mut self.ahead_due).min(MAX_AHEAD_BYTES);
            self.write_ahead(shared, budget);
        }
    }

    /// Writes up to about `budget` bytes of dirty leaves before the checkpoint that needs them, so that it has less to do. The newest version
    /// gets pages of its own that refer to the blocks; to readers nothing changes. Failure is harmless: the checkpoint tries again.
    fn write_ahead(&mut self, shared: &Shared, budget: usize) {
        let mut state = (*shared.newest()).clone();
        let mut draft = Draft::new(state.version);
        let result = self.write_leaves(shared, &mut state, &mut draft, budget);
        match result {
            Ok(written) if !written.is_empty() => {
                for page in &written {
                    self.redirect(shared, page, state.version);
                }
                self.space.written_ahead(&draft.allocated);
                let units: u64 = draft.allocated.iter().map(|extent| extent.units).sum();
                self.ahead_unflushed += units << self.superblock.unit_shift;
                if self.ahead_unflushed > MAX_UNFLUSHED_BYTES {
                    self.ahead_unflushed = 0;
                    // A failure is remembered, and reported by what needs a flush next.
                    let _ = shared.flush.flush_alone(shared.pager.blocks.file());
                }
                self.stage(shared, state, &mut draft, false);
            }
            Ok(_) => {}
            Err(_) => {
                self.give_back(shared, draft.take_unpublished());
                self.ahead_pause = MAX_AHEAD_BYTES;
            }
        }
    }

    fn write_leaves(
        &mut self,
        shared: &Shared,
        state: &mut Version,
        draft: &mut Draft,
        budget: usize,
    ) -> Result<Vec<Written>> {
        let mut written = Vec::new();
        let mut left = budget;
        for entry in state.collections.values_mut() {
            let mut editor = Editor {
                pager: &shared.pager,
                draft,
                free: &mut self.space.free,
                root: &mut entry.root,
                owner: entry.id,
                generation: self.superblock.generation + 1,
                compression: shared.config.compression,
                limits: shared.config.limits,
            };
            left = editor.write_ahead(left, &mut self.ahead, &mut written)?;
            if left == 0 {
                break;
            }
        }
        Ok(written)
    }

    /// A dirty page has a block now; snapshots may still ask for it by its number.
    fn redirect(&mut self, shared: &Shared, page: &Written, last: u64) {
        if shared.pager.dirty_page(page.number).is_some() {
            shared.pager.redirect(page.number, page.reference);
            self.kept.push(Kept {
                id: PageId::memory(page.number),
                first: page.stamp,
                last,
            });
        }
        shared.pager.insert_clean(page.reference.unit, Arc::clone(&page.node));
    }

    /// Makes `state`, whose new pages are in `draft` or dirty, durable and visible. On failure nothing changes, except that the
    /// writer may be poisoned.
    pub(crate) fn checkpoint(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        self.checkpoint_as(shared, state, draft, false)
    }

    /// As [`checkpoint`](Self::checkpoint); `closing` leaves both superblocks with the newest state and the log empty.
    pub(crate) fn checkpoint_as(
        &mut self,
        shared: &Shared,
        state: &mut Version,
        draft: &mut Draft,
        closing: bool,
    ) -> Result<()> {
        let mut allocated = Vec::new();
        match self.write_checkpoint(shared, state, draft, &mut allocated, closing) {
            Ok(done) => {
                self.adopt(shared, state, draft, done);
                Ok(())
            }
            Err(Failure::Undone(error)) => {
                self.give_back(shared, allocated);
                Err(error)
            }
            Err(Failure::Unknown(error)) => {
                shared.flush.fail(&error.to_string());
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
        closing: bool,
    ) -> std::result::Result<Done, Failure> {
        let generation = self.superblock.generation + 1;
        let mut catalog = self.superblock.catalog;
        let mut catalog_draft = Draft::new(state.version);
        let compression = shared.config.compression;
        let (written, roots) = {
            let free = &mut self.space.free;
            let mut writer = BlockWriter::new(&shared.pager, draft, free, generation, compression);
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
        let mut left: Vec<Extent> = self.space.retired().copied().collect();
        left.extend(&draft.retired_extents);
        left.extend(&catalog_draft.retired_extents);
        left.extend(self.superblock.free_map.map(|reference| Extent {
            start: reference.unit,
            units: u64::from(reference.units),
        }));
        let free = &mut self.space.free;
        let mut writer = BlockWriter::new(&shared.pager, &catalog_draft, free, generation, compression);
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
            log: self.log.as_ref().map_or(self.superblock.log, |log| {
                if closing {
                    log.fresh_position(generation)
                } else {
                    log.position()
                }
            }),
            closed: closing,
            ..self.superblock.clone()
        };
        seal(shared.pager.blocks.file(), &shared.flush, &superblock)?;
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
            if self.durable.collections.get(name) != Some(collection) || self.rewritten_entries.contains(name) {
                editor.set(name.as_bytes(), &collection.encode())?;
            }
        }
        Ok(())
    }

    /// Takes over a checkpoint that is durable. What fails here ends writing, but is no failure of the commits in it: they are visible.
    fn adopt(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft, done: Done) {
        let generation = done.superblock.generation;
        let older = std::mem::replace(&mut self.superblock, done.superblock);
        self.checkpoints += 1;
        self.ahead_due = 0;
        self.ahead_unflushed = 0;
        draft.allocated.clear();
        draft.spilled.clear();
        draft.retired_extents.clear();
        draft.pages.clear();
        self.space.checkpointed(Quarantine {
            generation,
            age: state.age(),
            extents: done.left,
        });
        self.durable = Arc::new(state.clone());
        for page in &done.written {
            self.redirect(shared, page, state.version);
        }
        let oldest = {
            let mut published = shared.published();
            let last = published.newest().version;
            published.install(Arc::clone(&self.durable));
            self.keep(shared, &published, last, draft.retired_pages.drain(..));
            published.oldest()
        };
        shared.notify();
        shared.flush.checkpointed(state.version);
        let released = self.space.release(&shared.pager, generation, oldest);
        cut_tail(
            shared.pager.blocks.file(),
            &self.superblock,
            shared.config.reserve_bytes,
        );
        if let Err(error) = released.and_then(|()| self.continue_log(generation, &older)) {
            shared.flush.fail(&error.to_string());
        }
    }

    /// The superblock that names the log's position is durable.
    fn continue_log(&mut self, generation: u64, older: &Superblock) -> Result<()> {
        let unlogged = std::mem::take(&mut self.unlogged);
        let version = self.superblock.version;
        let Some(log) = self.log.as_mut().filter(|_| !self.superblock.closed) else {
            return Ok(());
        };
        log.checkpointed(generation, &older.log);
        // Should this superblock be lost later, a record of a version that no record leads to shows the gap. It is not flushed:
        // without it, the older state is what a crash before this checkpoint leaves.
        if unlogged && log.has_room(0) {
            match log.append(&[], version, version, 0) {
                Err(Error::StorageFull { .. }) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// The log of a closed database may be missing; once it has a record it may not. This reaches the disk with the record, before it is
    /// acknowledged.
    pub(crate) fn begin_log(&mut self, shared: &Shared) -> Result<()> {
        if !self.superblock.closed {
            return Ok(());
        }
        let begun = Superblock {
            generation: self.superblock.generation + 1,
            closed: false,
            ..self.superblock.clone()
        };
        if let Err(error) = begun.write(shared.pager.blocks.file()) {
            // A slot that was written in part is not valid, and the other one has the same state.
            if !matches!(error, Error::StorageFull { .. }) {
                shared.flush.fail(&error.to_string());
            }
            return Err(error);
        }
        shared.flush.data_written();
        self.superblock = begun;
        Ok(())
    }

    /// Leaves a database whose log is empty and may be missing, and whose two superblocks say the same.
    pub(crate) fn close(&mut self, shared: &Shared) -> Result<()> {
        if self.superblock.closed && self.superblock.version == shared.newest().version {
            return Ok(());
        }
        let mut state = (*shared.newest()).clone();
        let mut draft = Draft::new(state.version);
        self.checkpoint_as(shared, &mut state, &mut draft, true)?;
        if let Some(cause) = shared.flush.failure() {
            return Err(Error::Poisoned { cause });
        }
        // Once the log is empty the older superblock would be an older state.
        let twin = Superblock {
            generation: self.superblock.generation + 1,
            ..self.superblock.clone()
        };
        let file = shared.pager.blocks.file();
        let written = twin.write(file).and_then(|()| shared.flush.flush_alone(file));
        written.inspect_err(|error| shared.flush.fail(&error.to_string()))?;
        self.superblock = twin;
        if let Some(log) = &mut self.log {
            log.restart(self.superblock.log);
        }
        Ok(())
    }
}

/// Writes the dirty trees of all collections; returns their new roots.
pub(crate) fn write_roots(writer: &mut BlockWriter<'_>, state: &Version) -> Result<Vec<(String, Child)>> {
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
