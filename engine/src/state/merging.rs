//! Merging the memtables into the trees while commits go on.
//!
//! When the active memtables have their share of the memory, or the log's half is full, the newest version is *frozen*: its active memtables become the frozen
//! ones of all versions from there on, and commits go to new ones. The frozen ones are merged in slices, in step with the commits: so many entries for so many
//! bytes that the last one is merged well before the active memtables are full again. Then a checkpoint makes the frozen version durable, and every version
//! since gets the new trees in place of the old ones and the frozen memtables.

use super::lending::{Loan, Returned};
use super::writer::Checkpoint;
use super::{Shared, Version, Writer};
use crate::block::PageId;
use crate::error::{Error, Result};
use crate::log::{Log, Position};
use crate::memtable::{Memtable, MemtableCursor};
use crate::node::LeafCell;
use crate::pages::{Draft, Extent, FreeSpace, Superblock};
use crate::tree::merge::{Change, Changes, Merge};
use crate::tree::{Editor, value};

/// In WebAssembly nobody but the writer merges.
const HAS_THREADS: bool = !cfg!(target_family = "wasm");
/// Fills and parts are in thousandths.
const FULL: usize = 1000;
/// How full the active memtables are when the frozen ones are merged.
const MERGED_AT: usize = 750;
/// How full they are when commits begin to help a thread that merges.
const HELPED_AT: usize = 250;
/// Bytes of nodes that are read before the progress is looked at, or in a slice in idle time.
const SLICE_BYTES: usize = 64 << 10;
/// In idle time so much is merged at least, or a sixteenth of what the active memtables may take, and only if that writes at most so many times as much.
const MIN_IDLE_BYTES: u64 = 64 << 10;
const IDLE_AMPLIFICATION: u64 = 8;
/// A partial checkpoint has this part of the file, but at least so many bytes or an eighth of the cache, and as many nodes where there is little room.
const ROUNDS: u64 = 16;
const MIN_ROUND_BYTES: u64 = 1 << 20;
const MIN_ROUND_NODES: usize = 8;
/// With fewer nodes in a round they are not packed with their neighbours.
const TIGHT_ROUND_NODES: usize = 64;

/// The entries of a memtable as changes of a tree.
pub(super) struct MemtableChanges {
    cursor: MemtableCursor,
    passed: usize,
    /// The rest is for another round.
    is_over: bool,
}

impl MemtableChanges {
    pub(super) fn new(memtable: &Memtable) -> Self {
        Self {
            cursor: memtable.cursor(),
            passed: 0,
            is_over: false,
        }
    }
}

impl Changes for MemtableChanges {
    fn peek(&self) -> Option<Change<'_>> {
        if self.is_over {
            return None;
        }
        self.cursor.entry().map(Change::from)
    }

    fn step(&mut self) {
        self.cursor.step();
        self.passed += 1;
    }
}

/// A frozen version on its way into the trees. What a failure undoes is what came after the last checkpoint, a partial one perhaps.
pub(crate) struct Merging {
    /// The frozen version as of the last checkpoint: its active memtables are what is not merged into its trees.
    target: Version,
    /// The same as of now.
    working: Version,
    /// Its collections in the order in which they are merged, and whether a partial checkpoint may have a part of them.
    order: Vec<(usize, bool)>,
    next: usize,
    /// Ids of the latter.
    partial: Vec<u32>,
    run: Option<(Merge, MemtableChanges)>,
    draft: Draft,
    /// Bytes of nodes that were written since the last checkpoint, but for the run's, and how many there should be at the next partial one.
    written: usize,
    round_bytes: usize,
    /// Entries in all, and those that are merged, but for the run's.
    entries: usize,
    merged: usize,
    /// How many of them each collection has, by its id.
    frozen_entries: Vec<(u32, usize)>,
    /// Where the log goes on behind it.
    log: Position,
    frozen: Frozen,
    /// It failed; nobody tries again before it has to be done.
    is_stalled: bool,
    /// Where a thread of its own stopped, for the checkpoint that comes then.
    paused: Option<Pause>,
}

/// What the writer has to know of the frozen version, whoever has its merge.
#[derive(Clone, Copy)]
pub(crate) struct Frozen {
    /// How full the log's half was behind it.
    log_fill: usize,
    /// The log lacks some of its commits.
    unlogged: bool,
}

/// How far a merge goes on.
#[derive(Clone, Copy)]
enum Goal {
    /// Until so many thousandths of the entries are merged.
    Part(usize),
    /// For one slice.
    Slice,
}

/// Why a merge paused.
#[derive(Clone, Copy)]
enum Pause {
    /// It is as far as was asked for.
    Slice,
    /// It has written as much as a partial checkpoint should have.
    Round,
    /// Everything is merged.
    End,
}

impl Merging {
    /// Thousandths of the entries that are merged.
    fn part(&self) -> usize {
        let passed = self.run.as_ref().map_or(0, |(_, changes)| changes.passed);
        (self.merged + passed) * FULL / self.entries.max(1)
    }

    /// Goes on until the goal is reached, or a round is over.
    fn advance(&mut self, shared: &Shared, free: &FreeSpace, generation: u64, goal: Goal) -> Result<Pause> {
        let entries = match goal {
            Goal::Part(part) if part < FULL => self.entries * part / FULL,
            _ => usize::MAX,
        };
        loop {
            let Some(&(index, is_partial)) = self.order.get(self.next) else {
                return Ok(Pause::End);
            };
            let Some((name, collection)) = self.working.collections.nth_mut(index) else {
                return Ok(Pause::End);
            };
            let memtable = &mut collection.layers.active;
            let (merge, changes) = self.run.get_or_insert_with(|| {
                // Packing takes room.
                let is_tight = self.round_bytes < TIGHT_ROUND_NODES * shared.config.limits.node_capacity;
                // Of all rounds: what is left goes to a part of the tree only.
                let frozen = self.frozen_entries.iter().find(|(id, _)| *id == collection.id);
                let entries = frozen.map_or(0, |(_, entries)| *entries);
                let merge = Merge::new(collection.root, if is_tight { 0 } else { entries });
                (merge, MemtableChanges::new(memtable))
            });
            if self.merged + changes.passed >= entries {
                return Ok(Pause::Slice);
            }
            changes.is_over |= is_partial && self.written + merge.written_bytes() >= self.round_bytes;
            let mut root = collection.root;
            let mut editor = Editor {
                pager: &shared.pager,
                draft: &mut self.draft,
                free,
                root: &mut root,
                owner: collection.id,
                generation,
                compression: shared.config.compression,
                limits: shared.config.limits,
            };
            let advanced = merge.advance(&mut editor, changes, SLICE_BYTES.min(self.round_bytes / 4));
            if advanced.map_err(|error| error.in_collection(name))? {
                if matches!(goal, Goal::Slice) {
                    return Ok(Pause::Slice);
                }
                continue;
            }
            let Some((merge, mut changes)) = self.run.take() else {
                continue;
            };
            self.written += merge.written_bytes();
            let finished = merge.finish(&mut editor, &mut changes);
            finished.map_err(|error| error.in_collection(name))?;
            collection.root = root;
            memtable.drop_first(changes.passed);
            self.merged += changes.passed;
            if memtable.is_empty() {
                self.next += 1;
            }
            if changes.is_over && !memtable.is_empty() {
                return Ok(Pause::Round);
            }
        }
    }

    /// Gives a version that was frozen, or came after that, what was merged.
    fn install(&self, version: &mut Version) {
        version.moves += 1;
        for merged in self.working.collections.values() {
            let collection = version.collections.values_mut().find(|entry| entry.id == merged.id);
            if let Some(collection) = collection.filter(|entry| !entry.layers.frozen.is_empty()) {
                collection.root = merged.root;
                collection.layers.frozen = merged.layers.active.clone();
            }
        }
    }

    /// Goes back to the last checkpoint; gives the extents that were taken since.
    fn reset(&mut self) -> Vec<Extent> {
        self.working = self.target.clone();
        self.run = None;
        self.paused = None;
        self.next = 0;
        self.written = 0;
        self.is_stalled = true;
        self.order_collections();
        std::mem::take(&mut self.draft).take_unpublished()
    }

    /// Those of which a partial checkpoint may have a part come first.
    fn order_collections(&mut self) {
        let collections = self.working.collections.values().enumerate();
        let left = collections.filter(|(_, collection)| !collection.layers.active.is_empty());
        let (partial, whole): (Vec<_>, Vec<_>) = left
            .map(|(index, collection)| (index, self.partial.contains(&collection.id)))
            .partition(|(_, is_partial)| *is_partial);
        self.order = partial;
        self.order.extend(whole);
    }

    /// Extents that are taken and belong to no version yet.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> + '_ {
        self.draft.unpublished()
    }
}

impl Writer {
    /// How full the active memtables of the newest version are, or the log's half if that is fuller.
    fn fill(&self, shared: &Shared) -> usize {
        let share = shared.config.max_active_bytes() as u64;
        let active = shared.newest().active_bytes() as u64 * FULL as u64 / share;
        let log = self.log.as_ref().map_or(0, |log| {
            let start = self.frozen().map_or(0, |frozen| frozen.log_fill);
            if log.fill() >= FULL {
                return FULL;
            }
            log.fill().saturating_sub(start) * FULL / FULL.saturating_sub(start).max(FULL / 10)
        });
        log.max(usize::try_from(active).unwrap_or(usize::MAX))
    }

    /// The log lacks commits that no checkpoint has.
    pub(crate) fn is_unlogged(&self) -> bool {
        self.unlogged || self.frozen().is_some_and(|frozen| frozen.unlogged)
    }

    /// The frozen version, if there is one.
    pub(super) fn frozen(&self) -> Option<Frozen> {
        self.lent.or(self.merging.as_ref().map(|merging| merging.frozen))
    }

    /// Merges as much as the last commit calls for.
    pub(crate) fn pace(&mut self, shared: &Shared) -> Result<()> {
        let fill = self.fill(shared);
        let has_thread = HAS_THREADS && shared.lending.has_merger();
        let part = match fill.checked_sub(HELPED_AT) {
            _ if !has_thread => fill * FULL / MERGED_AT,
            late => late.unwrap_or(0) * FULL / (MERGED_AT - HELPED_AT),
        };
        if HAS_THREADS && self.lent.is_some() {
            let lending = &shared.lending;
            if fill < FULL && lending.part() >= part && !lending.has_returned() {
                return Ok(());
            }
            self.recall(shared)?;
        }
        if let Some(merging) = &self.merging {
            if merging.is_stalled {
                return Ok(());
            }
            if !self.advance(shared, Goal::Part(part))? {
                return Ok(());
            }
            self.seal_merged(shared, false)?;
        }
        if self.fill(shared) < FULL {
            return Ok(());
        }
        self.freeze(shared)?;
        if self.log.as_ref().is_some_and(|log| log.fill() >= FULL) {
            // The other half is needed until this is merged.
            self.finish_merging(shared)?;
            self.switch_log(shared)?;
        }
        Ok(())
    }

    /// Takes the merge back from the thread that has it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the thread panicked: nobody knows what is merged.
    pub(crate) fn recall(&mut self, shared: &Shared) -> Result<()> {
        if !HAS_THREADS || self.lent.take().is_none() {
            return Ok(());
        }
        match shared.lending.recall() {
            Returned::Merging(merging) => self.merging = Some(*merging),
            Returned::Failed(mut merging) => {
                self.give_back(shared, merging.reset());
                self.merging = Some(*merging);
            }
            Returned::Lost => {
                let cause = "the thread that merged memtables panicked".to_owned();
                shared.flush.fail(&cause);
                return Err(Error::Poisoned { cause });
            }
        }
        Ok(())
    }

    /// Gives the merge that is under way to a thread.
    fn lend<'s>(&mut self, shared: &'s Shared) -> Option<Loan<'s>> {
        let merging = self.merging.take_if(|merging| !merging.is_stalled)?;
        self.lent = Some(merging.frozen);
        shared.lending.begin(merging.part());
        Some(Loan::new(&shared.lending, merging))
    }

    /// Merges beside commits until a round is over or somebody needs the merge, and makes the checkpoint; `false` if there is nothing to merge. For a thread
    /// of its own.
    pub(crate) fn merge_beside(shared: &Shared) -> Result<bool> {
        let mut writer = shared.writable()?;
        let Some(mut loan) = writer.lend(shared) else {
            return Ok(false);
        };
        let free = writer.space.free.clone();
        let generation = writer.superblock.generation + 1;
        drop(writer);
        loop {
            let advanced = loan.slice(|merging| {
                let advanced = merging.advance(shared, &free, generation, Goal::Slice);
                shared.lending.set_part(merging.part());
                if let Ok(pause @ (Pause::Round | Pause::End)) = advanced {
                    merging.paused = Some(pause);
                    return Ok(false);
                }
                advanced.map(|_| true)
            });
            match advanced {
                Some(Ok(true)) if !shared.lending.is_wanted() => continue,
                // What is flushed here need not be flushed by the checkpoint, under the writer's lock.
                Some(Ok(false)) if !shared.lending.is_wanted() => {
                    shared.flush.flush_alone(shared.pager.blocks.file())?;
                }
                Some(Err(_)) => loan.has_failed = true,
                _ => {}
            }
            break;
        }
        drop(loan);
        let mut writer = shared.writable()?;
        writer.recall(shared)?;
        if writer.merging.as_ref().is_some_and(|merging| merging.paused.is_some())
            && writer.advance(shared, Goal::Slice)?
        {
            writer.seal_merged(shared, false)?;
        }
        Ok(true)
    }

    /// Merges a slice in time that nobody needs; tells whether there is more to merge.
    pub(crate) fn merge_idle(&mut self, shared: &Shared) -> Result<bool> {
        if shared.flush.failure().is_some() {
            return Ok(false);
        }
        match &self.merging {
            None if self.lent.is_some() => return Ok(false),
            Some(merging) if merging.is_stalled => return Ok(false),
            Some(_) => {
                if self.advance(shared, Goal::Slice)? {
                    self.seal_merged(shared, false)?;
                }
            }
            None if self.is_worth_merging(shared) => self.freeze(shared)?,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the active memtables are worth a merge before they are full: enough of the trees goes through them that little is written in vain.
    fn is_worth_merging(&self, shared: &Shared) -> bool {
        let newest = shared.newest();
        let bytes = newest.active_bytes() as u64;
        let layers = newest.collections.values().map(|collection| &collection.layers);
        let entries: usize = layers.map(|layers| layers.fresh.len() + layers.active.len()).sum();
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        // As a rule a leaf has no more than half of what an inner node may have.
        let leaves = entries as u64 * u64::from(self.superblock.node_bytes / 2);
        let written = leaves.min(self.space.used_units() * unit_bytes + bytes);
        let least = MIN_IDLE_BYTES.min((shared.config.max_active_bytes() / 16) as u64);
        bytes >= least && written <= bytes * IDLE_AMPLIFICATION
    }

    /// Whether a merge failed and has to be done before anything else is committed.
    pub(crate) fn must_merge(&self, shared: &Shared) -> bool {
        self.merging.as_ref().is_some_and(|merging| merging.is_stalled) && self.fill(shared) >= FULL
    }

    /// Freezes the newest version. Nothing else is frozen.
    #[inline(never)]
    fn freeze(&mut self, shared: &Shared) -> Result<()> {
        debug_assert!(self.frozen().is_none(), "one version is frozen at a time");
        self.switch_log(shared)?;
        // What was staged for a flush that is over by now would be absorbed into a copy of the active memtables.
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
        // Where the log leads from the last checkpoint to this version, it leads there from anything between as well.
        let has_log = log.is_some_and(|log| !log.checkpoint_first) && !unlogged;
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
        };
        merging.order_collections();
        self.merging = Some(merging);
        if HAS_THREADS {
            shared.lending.announce();
        }
        Ok(())
    }

    /// Goes on in the log's other half, if much of this one is used and the other is not needed.
    fn switch_log(&mut self, shared: &Shared) -> Result<()> {
        let newest = &self.superblock.log;
        let Some(log) = self
            .log
            .as_ref()
            .filter(|log| log.should_switch() && log.needs_only_this_half(newest))
        else {
            return Ok(());
        };
        if !self.older_log.is_some_and(|older| log.needs_only_this_half(&older)) {
            match self.write_twin(shared) {
                // The log goes on in this half for now.
                Err(Error::StorageFull { .. }) => return Ok(()),
                written => written?,
            }
        }
        // A power cut that took the end of this half and left the beginning of the other would look like damage.
        shared.flush.flush_appended(shared.pager.blocks.file())?;
        let generation = self.superblock.generation;
        if let Some(log) = &mut self.log {
            log.switch(generation);
        }
        Ok(())
    }

    /// Writes the newest superblock once more, over the older one. What only that reached is free. After [`Error::StorageFull`] the newest
    /// one is there as before.
    pub(super) fn write_twin(&mut self, shared: &Shared) -> Result<()> {
        let twin = Superblock {
            generation: self.superblock.generation + 1,
            ..self.superblock.clone()
        };
        let file = shared.pager.blocks.file();
        self.older_log = None;
        if let Err(error) = twin.write(file) {
            if !matches!(error, Error::StorageFull { .. }) {
                shared.flush.fail(&error.to_string());
            }
            return Err(error);
        }
        shared.flush.flush_alone(file)?;
        self.older_log = Some(self.superblock.log);
        self.superblock = twin;
        let oldest = shared.published().oldest();
        let released = self.space.release(&shared.pager, self.superblock.generation, oldest);
        released.inspect_err(|error| shared.flush.fail(&error.to_string()))
    }

    /// Merges until the goal is reached; tells whether all frozen entries are merged. A failure undoes what was merged since the last checkpoint, and the
    /// next try begins there.
    fn advance(&mut self, shared: &Shared, goal: Goal) -> Result<bool> {
        self.recall(shared)?;
        loop {
            let Some(mut merging) = self.merging.take() else {
                return Ok(true);
            };
            let generation = self.superblock.generation + 1;
            let result = match merging.paused.take() {
                Some(pause) => Ok(pause),
                None => merging.advance(shared, &self.space.free, generation, goal),
            };
            if result.is_err() {
                self.give_back(shared, merging.reset());
            }
            self.merging = Some(merging);
            match result? {
                Pause::Slice => return Ok(false),
                Pause::End => return Ok(true),
                Pause::Round => {
                    self.seal_part(shared)?;
                    if matches!(goal, Goal::Slice) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// What is written between two partial checkpoints: the file keeps as much of the old nodes, until the second of them.
    fn round_bytes(&self, shared: &Shared) -> usize {
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        let least = MIN_ROUND_BYTES.min(shared.config.cache_bytes as u64 / 8);
        let bytes = (self.space.used_units() * unit_bytes / ROUNDS).max(least);
        let bytes = match shared.config.reserve_bytes {
            0 => bytes,
            _ => bytes.min(self.room_bytes(shared) / 4),
        };
        (bytes as usize).max(MIN_ROUND_NODES * shared.config.limits.node_capacity)
    }

    /// Makes a checkpoint of what is merged so far. Its trees have some of the changes of the frozen version, its log has all of them: read back, they
    /// are made once more, and the outcome is the same.
    fn seal_part(&mut self, shared: &Shared) -> Result<()> {
        // None of the changes may be lost from the log.
        shared.flush.flush_appended(shared.pager.blocks.file())?;
        let Some(mut merging) = self.merging.take() else {
            return Ok(());
        };
        let mut state = (*self.durable).clone();
        for collection in state.collections.values_mut() {
            let mut merged = merging.working.collections.values();
            if let Some(merged) = merged.find(|merged| merged.id == collection.id)
                && merging.partial.contains(&merged.id)
            {
                collection.root = merged.root;
            }
        }
        let log = self.superblock.log;
        let sealed = self.seal(shared, &mut merging, state, log, false, true);
        self.merging = Some(merging);
        sealed?;
        if self.is_tight(shared) {
            self.write_twin(shared)?;
        }
        Ok(())
    }

    /// Makes a checkpoint of the frozen version, which is merged.
    fn seal_merged(&mut self, shared: &Shared, closing: bool) -> Result<()> {
        let Some(mut merging) = self.merging.take() else {
            return Ok(());
        };
        let state = merging.working.clone();
        let log = merging.log;
        let sealed = self.seal(shared, &mut merging, state, log, closing, false);
        if sealed.is_err() {
            self.merging = Some(merging);
            return sealed;
        }
        self.continue_log(shared, merging.frozen.unlogged);
        Ok(())
    }

    #[inline(never)]
    fn seal(
        &mut self,
        shared: &Shared,
        merging: &mut Merging,
        mut state: Version,
        log: Position,
        closing: bool,
        is_partial: bool,
    ) -> Result<()> {
        // Nodes that were replaced before the merge was over.
        for extent in merging.draft.released.drain(..) {
            shared.pager.remove(PageId::disk(extent.start));
            self.space.free.free(extent)?;
        }
        state.moves = shared.newest().moves + 1;
        let mut draft = std::mem::take(&mut merging.draft);
        let install = |version: &mut Version| merging.install(version);
        let first = merging.target.version;
        let result = self.write(
            shared,
            &mut state,
            &mut draft,
            &Checkpoint {
                log,
                closing,
                is_partial,
                install: Some((first, &install)),
            },
        );
        merging.draft = draft;
        match result {
            Ok(()) => {
                merging.target = merging.working.clone();
                merging.written = 0;
                merging.round_bytes = self.round_bytes(shared);
            }
            Err(_) => {
                let taken = merging.reset();
                self.give_back(shared, taken);
            }
        }
        result
    }

    /// Merges all that is frozen and makes its checkpoint.
    #[inline(never)]
    pub(crate) fn finish_merging(&mut self, shared: &Shared) -> Result<()> {
        self.advance(shared, Goal::Part(FULL))?;
        self.seal_merged(shared, false)
    }

    /// Makes the newest version durable and visible. On failure nothing changes, except that the writer may be poisoned.
    #[inline(never)]
    pub(crate) fn checkpoint_newest(&mut self, shared: &Shared, closing: bool) -> Result<()> {
        self.recall(shared)?;
        let newest = shared.newest().version;
        let is_older = |merging: &Merging| merging.target.version < newest;
        if self.merging.as_ref().is_some_and(is_older) {
            self.finish_merging(shared)?;
        }
        if self.merging.is_none() {
            self.freeze(shared)?;
        }
        self.advance(shared, Goal::Part(FULL))?;
        self.seal_merged(shared, closing)
    }

    /// Gives the merge up: what is frozen and not merged becomes part of the active memtables again.
    ///
    /// # Errors
    /// Of reading the index of a long value that was replaced; nothing is changed then.
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

    /// Gives a transaction's state what was merged since it began.
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
            collection.layers.frozen = other.layers.frozen.clone();
        }
    }
}
