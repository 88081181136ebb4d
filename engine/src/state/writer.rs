//! The single writer: publishes versions and makes checkpoints.

use std::sync::Arc;

use super::merging::{Frozen, MemtableChanges};
use super::reserve::max_waiting;
use super::{Collection, Merging, Shared, Summary, Version};
use crate::block::PageId;
use crate::error::{Error, Result};
use crate::log::{Log, Position};
use crate::memtable::{Layers, Memtable};
use crate::node::Child;
use crate::pages::{Age, Draft, Extent, FreeMapWriter, Quarantine, Space, Superblock, cut_tail, seal};
use crate::trace;
use crate::tree::Editor;
use crate::tree::merge::Merge;

/// State of the writer, behind the writer lock.
#[allow(clippy::struct_excessive_bools, reason = "they are independent")]
pub(crate) struct Writer {
    /// The newest durable superblock.
    pub superblock: Superblock,
    /// The version in that superblock.
    pub durable: Arc<Version>,
    pub space: Space,
    pub log: Option<Log>,
    /// Log position that the older superblock names, if known.
    pub older_log: Option<Position>,
    /// The frozen version until a checkpoint contains it; `None` while a thread has its merge.
    pub merging: Option<Merging>,
    /// The frozen version whose merge a thread has.
    pub lent_merge: Option<Frozen>,
    /// Bytes of the active memtables after the last commit.
    pub paced_bytes: usize,
    /// The retained feed holds no commit before this version.
    pub oldest_in_feed: u64,
    /// Commits since the last checkpoint, or since the frozen version, are missing from the log, so
    /// only a checkpoint makes them durable.
    pub unlogged: bool,
    pub checkpoints: u64,
    #[cfg(feature = "testing")]
    pub merges: crate::testing::events::MergeEvents,
    /// Collections whose catalog entries the next checkpoint rewrites even if unchanged, in order
    /// of their names.
    pub rewritten_entries: Vec<String>,
    /// Replay merged commits of the log into the trees. Until a whole checkpoint has them, none can be
    /// partial: the nodes that were replaced are in no list of its free map.
    pub trees_are_ahead: bool,
    /// Most units that may wait for a checkpoint to become free, as of the last one.
    pub max_waiting: u64,
    /// The storage refused the space that a commit asked for.
    pub is_full: bool,
}

/// A checkpoint that is written except for its superblock.
pub(super) struct Prepared {
    superblock: Superblock,
    /// Extents that the checkpoint no longer reaches.
    left: Vec<Extent>,
    /// Extents of values that it no longer reaches, but whose records are in its log.
    logged: Vec<Extent>,
    pub checkpoint: Checkpoint,
}

impl Prepared {
    /// Makes the checkpoint durable. Needs no lock, as long as no other superblock is written and
    /// nothing that this one reaches is freed.
    pub(super) fn seal(&mut self, shared: &Shared) -> Result<()> {
        let file = shared.pager.blocks.file();
        // The log has to lead from either superblock to this version, and to more if this is a part of it.
        if self.superblock.log_half_bytes > 0 {
            shared.flush.flush_appended(file)?;
        }
        let Position { salt, offset, .. } = self.superblock.log;
        self.superblock.log_is_flushed = !self.superblock.closed && shared.flush.flushed_to(salt) >= offset;
        seal(file, &shared.flush, &self.superblock)
    }
}

/// The first version that receives the outcome of a merge, and the function that installs it there.
pub(super) type Install<'i> = (u64, &'i dyn Fn(&mut Version));

/// Parameters of a checkpoint.
#[derive(Clone, Copy)]
pub(super) struct Checkpoint {
    /// Log position that its superblock names.
    pub log: Position,
    /// It leaves the log empty.
    pub closing: bool,
    /// It is partial: the version of whose changes it holds a part. More checkpoints of the same
    /// version follow, and the log from before the freeze has to lead to that version.
    pub part_of: Option<u64>,
}

impl Checkpoint {
    pub(super) fn is_partial(&self) -> bool {
        self.part_of.is_some()
    }
}

impl Writer {
    pub(crate) fn new(superblock: Superblock, durable: Arc<Version>, space: Space, log: Option<Log>) -> Self {
        Self {
            max_waiting: max_waiting(&superblock, &space),
            superblock,
            durable,
            space,
            log,
            older_log: None,
            merging: None,
            lent_merge: None,
            paced_bytes: 0,
            oldest_in_feed: 0,
            unlogged: false,
            checkpoints: 0,
            #[cfg(feature = "testing")]
            merges: crate::testing::events::MergeEvents::default(),
            rewritten_entries: Vec::new(),
            trees_are_ahead: false,
            is_full: false,
        }
    }

    pub(crate) fn take_collection_id(&mut self) -> Result<u32> {
        let id = self.superblock.next_collection_id;
        self.superblock.next_collection_id = id.checked_add(1).ok_or_else(|| Error::InvalidArgument {
            what: "all collection ids are used up; copy the data into a new database".into(),
        })?;
        Ok(id)
    }

    /// Marks the id of an existing collection as used.
    pub(crate) fn reserve_collection_id(&mut self, id: u32) {
        let next = &mut self.superblock.next_collection_id;
        *next = (*next).max(id.saturating_add(1));
    }

    /// Frees extents that were written but never published, unless writing has failed: after a
    /// failed superblock write the disk may refer to them.
    pub(crate) fn give_back(&mut self, shared: &Shared, extents: Vec<Extent>) {
        if shared.flush.failure().is_some() {
            return;
        }
        for extent in extents {
            shared.pager.remove(PageId::disk(extent.start));
            let freed = self.space.free.free(extent);
            debug_assert!(freed.is_ok(), "an extent that was allocated can be freed");
        }
        // Extents that could not be written lie beyond the end of the file and offer no space.
        self.space.free.trim_end();
        if self.is_full {
            self.cut_free_tail(shared);
        }
    }

    /// Makes a draft the newest version; returns whether it is visible. It is visible immediately
    /// unless `needs_flush` is set or an earlier version has to be flushed first.
    pub(crate) fn stage(&mut self, shared: &Shared, mut state: Version, draft: &mut Draft, needs_flush: bool) -> bool {
        // Clones of unsorted memtables have other sizes.
        state.sort();
        let retired = draft.take_retired();
        self.space.commit(draft.allocated.drain(..), retired);
        self.space.remove_values(std::mem::take(&mut draft.removed_units));
        let visible = shared.published().stage(state, needs_flush);
        if visible {
            shared.notify();
        }
        visible
    }

    /// Makes `state`, whose new pages are in `draft` and whose memtables are empty, durable and
    /// visible. On failure nothing changes, except that the writer may be poisoned.
    pub(crate) fn checkpoint(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        debug_assert!(self.frozen().is_none(), "what is frozen comes first");
        let log = self.log.as_ref().map_or(self.superblock.log, Log::position);
        let unlogged = self.unlogged;
        let checkpoint = Checkpoint {
            log,
            closing: false,
            part_of: None,
        };
        let mut prepared = self.prepare(shared, state, draft, &checkpoint)?;
        let sealed = prepared.seal(shared);
        self.complete(shared, state, draft, prepared, sealed, None)?;
        self.unlogged = false;
        self.continue_log(shared, unlogged);
        Ok(())
    }

    /// Writes everything of a checkpoint of `state` but its superblock. On failure nothing changes.
    pub(super) fn prepare(
        &mut self,
        shared: &Shared,
        state: &mut Version,
        draft: &Draft,
        checkpoint: &Checkpoint,
    ) -> Result<Prepared> {
        let mut allocated = Vec::new();
        let prepared = self.write_checkpoint(shared, state, draft, &mut allocated, checkpoint);
        if prepared.is_err() {
            self.give_back(shared, allocated);
        }
        prepared
    }

    /// Adopts a checkpoint that was sealed, or fails with its seal.
    pub(super) fn complete(
        &mut self,
        shared: &Shared,
        state: &Version,
        draft: &mut Draft,
        prepared: Prepared,
        sealed: Result<()>,
        install: Option<Install<'_>>,
    ) -> Result<()> {
        sealed.inspect_err(|error| shared.flush.fail(&error.to_string()))?;
        self.adopt(shared, state, draft, prepared, install);
        Ok(())
    }

    fn write_checkpoint(
        &mut self,
        shared: &Shared,
        state: &mut Version,
        draft: &Draft,
        allocated: &mut Vec<Extent>,
        checkpoint: &Checkpoint,
    ) -> Result<Prepared> {
        if self.superblock.closed && !checkpoint.closing {
            match self.begin_half(shared) {
                // A checkpoint may be what frees space; it needs no log.
                Err(Error::StorageFull { .. }) => {}
                begun => begun?,
            }
        }
        let generation = self.superblock.generation + 1;
        let mut catalog = self.superblock.catalog;
        let mut catalog_draft = Draft::new(state.version);
        let edited = self.edit_catalog(shared, state, &mut catalog, &mut catalog_draft);
        allocated.extend(catalog_draft.unpublished());
        edited?;
        let (mut left, coming) = self.space.around_checkpoint(checkpoint.is_partial());
        // Behind a partial checkpoint, the log from before the freeze is applied again, and with it
        // records of values that the merge has since replaced (I27).
        let mut logged = Vec::new();
        for retired in &draft.retired {
            let is_logged = checkpoint.is_partial() && retired.written_by > self.durable.version;
            let list = if is_logged { &mut logged } else { &mut left };
            list.push(retired.extent);
        }
        left.extend(catalog_draft.take_retired());
        left.extend(self.superblock.free_map.map(|reference| Extent {
            start: reference.unit,
            units: u64::from(reference.units),
        }));
        let mut writer = FreeMapWriter {
            pager: &shared.pager,
            free: &self.space.free,
            generation,
            allocated,
        };
        let result = writer.write(&self.space.quarantine, &coming, &left);
        let log = match &self.log {
            Some(log) if checkpoint.closing => log.fresh_position(generation),
            _ => checkpoint.log,
        };
        let superblock = Superblock {
            generation,
            version: state.version,
            catalog,
            free_map: result?,
            file_units: self.space.free.end(),
            log,
            // Known only once the log is flushed.
            log_is_flushed: false,
            closed: checkpoint.closing,
            log_reaches: checkpoint.part_of.unwrap_or(0),
            ..self.superblock.clone()
        };
        Ok(Prepared {
            superblock,
            left,
            logged,
            checkpoint: *checkpoint,
        })
    }

    /// Updates the catalog's tree to the collections of `state`.
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
            free: &self.space.free,
            root: catalog,
            owner: 0,
            generation: self.superblock.generation + 1,
            compression: shared.config.compression,
            limits: shared.config.limits,
        };
        let durable = &self.durable.collections;
        // Only these can have changed.
        let ids = state
            .collections
            .select(|summary| summary.changed_at >= self.durable.version);
        let examined = || ids.iter().filter_map(|id| state.collections.by_id(*id));
        let added = examined().filter(|(name, _)| !durable.contains_key(name)).count();
        let rewritten = self.rewritten_entries.iter();
        let rewritten = rewritten.filter_map(|name| state.collections.get_key_value(name));
        let mut changes = Memtable::default();
        for (name, collection) in examined().chain(rewritten) {
            let entry = collection.encode();
            let is_stored = durable.get(name).is_some_and(|durable| durable.encode() == entry);
            if !is_stored || self.rewritten_entries.binary_search(name).is_ok() {
                let payload = editor.payload_of(name.as_bytes(), &entry)?;
                changes.put(name.as_bytes(), Some(&payload), None);
            }
        }
        if durable.len() + added > state.collections.len() {
            for (name, _) in durable.iter().filter(|(name, _)| !state.collections.contains_key(name)) {
                changes.put(name.as_bytes(), None, None);
            }
        }
        debug_assert!(
            {
                let is_stored = |name: &String, collection: &Collection| {
                    durable
                        .get(name)
                        .is_some_and(|durable| durable.encode() == collection.encode())
                };
                let is_known = |name: &String| changes.get(name.as_bytes()).is_some();
                let mut kept = state.collections.iter();
                let mut dropped = durable.iter().filter(|(name, _)| !state.collections.contains_key(name));
                kept.all(|(name, collection)| is_known(name) || is_stored(name, collection))
                    && dropped.all(|(name, _)| is_known(name))
            },
            "changed and dropped collections are known"
        );
        if changes.is_empty() {
            return Ok(());
        }
        Merge::new(*editor.root, changes.len()).run(&mut editor, &mut MemtableChanges::new(&changes))
    }

    /// Adopts a durable checkpoint. A failure here ends writing but does not fail the commits in
    /// the checkpoint: they are visible.
    fn adopt(
        &mut self,
        shared: &Shared,
        state: &Version,
        draft: &mut Draft,
        done: Prepared,
        install: Option<Install<'_>>,
    ) {
        let generation = done.superblock.generation;
        self.older_log = Some(self.superblock.log);
        self.superblock = Superblock {
            // Commits since the checkpoint was prepared may have taken ids.
            next_collection_id: self.superblock.next_collection_id,
            ..done.superblock
        };
        self.checkpoints += 1;
        trace::event!(
            DEBUG,
            "checkpoint",
            generation = generation,
            version = self.superblock.version,
            partial = done.checkpoint.is_partial(),
            closing = done.checkpoint.closing,
            file_bytes = self.superblock.file_units << self.superblock.unit_shift,
        );
        #[cfg(feature = "testing")]
        {
            self.merges.partial += u64::from(done.checkpoint.is_partial());
            self.merges.ends_partial = done.checkpoint.is_partial();
        }
        draft.allocated.clear();
        draft.spilled.clear();
        // Only snapshots may still ask for these pages.
        for extent in draft.take_retired() {
            shared.pager.remove(PageId::disk(extent.start));
        }
        // Snapshots of any version so far may refer to the old places.
        let newest = shared.newest().version.max(state.version);
        let quarantine = Quarantine {
            generation,
            age: Age {
                version: newest,
                moves: state.moves,
            },
            extents: done.left,
        };
        if done.checkpoint.is_partial() {
            self.space.partly_checkpointed(quarantine, done.logged);
        } else {
            self.space.checkpointed(quarantine);
            self.trees_are_ahead = false;
        }
        let mut durable = state.clone();
        durable.change(Summary::has_changes, |layers| *layers = Layers::default());
        self.durable = Arc::new(durable);
        // The log was flushed for this checkpoint, with more than the checkpoint has.
        let durable = shared.flush.durable_version().max(state.version);
        let oldest = {
            let mut published = shared.published();
            match install {
                None => published.install(Arc::clone(&self.durable)),
                Some((first, install)) => {
                    published.publish(durable);
                    published.relayout(first, install);
                }
            }
            shared.pager.reserve(published.newest().memory_bytes());
            published.oldest()
        };
        shared.notify();
        shared.flush.checkpointed(state.version);
        let released = self.space.release(&shared.pager, generation, oldest);
        if let Err(error) = released {
            shared.flush.fail(&error.to_string());
        }
        self.max_waiting = max_waiting(&self.superblock, &self.space);
        // Commits since the checkpoint was prepared may have made the file longer.
        let end = self.space.free.end() * shared.pager.blocks.unit_bytes() as u64;
        cut_tail(shared.pager.blocks.file(), end, shared.config.reserve_bytes);
    }

    /// Continues the log after a checkpoint. A failure here ends writing.
    pub(super) fn continue_log(&mut self, shared: &Shared, unlogged: bool) {
        let version = self.superblock.version;
        let Some(log) = self.log.as_mut().filter(|_| !self.superblock.closed) else {
            return;
        };
        log.checkpointed();
        // If this superblock is lost later, a record whose version no earlier record leads to
        // reveals the gap. The record is not flushed: without it, recovery finds the older state,
        // as after a crash before this checkpoint.
        if unlogged && log.has_space(0) {
            match log.append(&[], version, version, 0) {
                Ok(()) | Err(Error::StorageFull { .. }) => {}
                Err(error) => shared.flush.fail(&error.to_string()),
            }
        }
    }
}
