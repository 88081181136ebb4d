//! Merges the memtables into the trees while commits continue.
//!
//! When the active memtables have reached their share of the memory, or the log's half is full, the
//! newest version is *frozen*: its active memtables become the frozen ones of all versions from
//! then on, and commits go to new ones.
//!
//! The frozen memtables are merged in slices, paced by the commits: so many entries per committed
//! byte that the merge ends well before the active memtables are full again. Then a checkpoint
//! makes the frozen version durable, and every later version gets the new trees in place of the old
//! trees and the frozen memtables.

use super::merge_thread::{BorrowedMerge, Returned};
use super::writer::{Checkpoint, Prepared};
use super::{Shared, Summary, Version, Writer};
use crate::block::PageId;
use crate::error::{Error, Result};
use crate::log::{Log, Position};
use crate::memtable::{Layers, Memtable, MemtableCursor, MergedChanges};
use crate::node::LeafCell;
use crate::pages::{Draft, Extent, FreeSpace};
use crate::trace;
use crate::tree::merge::{Change, Changes, Merge};
use crate::tree::{Editor, value};

/// In WebAssembly only the writer merges.
const HAS_THREADS: bool = !cfg!(target_family = "wasm");
/// Fill levels and parts are in thousandths.
const FULL: usize = 1000;
/// Fill of the active memtables at which the frozen ones are completely merged.
const MERGED_AT: usize = 750;
/// Fill at which commits start to help a merging thread.
const HELPED_AT: usize = 250;
/// Bytes of nodes that are read between two checks of the progress, or in one slice in idle time.
const SLICE_BYTES: usize = 64 << 10;
/// A commit that helps the merging thread reads one slice, or up to this many times the bytes that
/// it added to the memtables.
const HELP_AMPLIFICATION: usize = 64;
/// Idle time starts a merge only of at least this many bytes, or a sixteenth of what the active
/// memtables may take if that is less, and only if it writes at most `IDLE_AMPLIFICATION` times as
/// much.
const MIN_IDLE_BYTES: u64 = 64 << 10;
const IDLE_AMPLIFICATION: u64 = 8;
/// It also starts one once this part of the space that may wait for a checkpoint waits.
const IDLE_WAITING: u64 = 4;
/// A partial checkpoint covers this part of the used space, but at least `MIN_ROUND_BYTES` or an
/// eighth of the cache, whichever is less. Where space is scarce it covers less, but at least
/// `MIN_ROUND_NODES` nodes.
const ROUNDS: u64 = 16;
const MIN_ROUND_BYTES: u64 = 1 << 20;
const MIN_ROUND_NODES: usize = 8;
/// Rounds of fewer nodes do not pack nodes with their neighbours.
const TIGHT_ROUND_NODES: usize = 64;
/// Space given up by the last checkpoint is reclaimed if it is at least this part of the used
/// space.
const RECLAIMED_PART: u64 = 16;

/// The entries of a memtable as changes to a tree.
pub(super) struct MemtableChanges {
    cursor: MemtableCursor,
    passed: usize,
    /// The remaining entries belong to another round.
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

/// A frozen version being merged into the trees. A failure undoes everything since the last
/// checkpoint, which may be a partial one.
pub(crate) struct Merging {
    /// The frozen version as of the last checkpoint: its active memtables hold the entries that are not merged
    /// into its trees.
    target: Version,
    /// The frozen version as merged so far.
    working: Version,
    /// Its collections with frozen entries, in merge order.
    order: Vec<Part>,
    next: usize,
    run: Option<(Merge, MemtableChanges)>,
    draft: Draft,
    /// Bytes of nodes written since the last checkpoint, excluding the current run, and the number
    /// that triggers the next partial one.
    written: usize,
    pub(super) round_bytes: usize,
    /// Number of all entries, and of those merged, excluding the current run.
    entries: usize,
    merged: usize,
    /// Log position behind the frozen version.
    log: Position,
    frozen: Frozen,
    /// The merge failed; it is not retried until it has to be done.
    is_stalled: bool,
    /// The merge waits for this checkpoint.
    paused: Option<Pause>,
    /// The checkpoint being made.
    sealing: Option<Sealing>,
}

/// A checkpoint of a merge.
struct Sealing {
    state: Version,
    prepared: Prepared,
    /// Whether the superblock is durable, once it was written.
    outcome: Option<Result<()>>,
}

/// A collection of a frozen version.
struct Part {
    id: u32,
    /// Number of its frozen entries.
    entries: usize,
    /// Whether a partial checkpoint may hold part of it.
    is_partial: bool,
}

/// The writer's view of the frozen version, independent of who runs its merge.
#[derive(Clone, Copy)]
pub(crate) struct Frozen {
    /// Fill of the log's half behind the frozen version.
    log_fill: usize,
    /// Some of its commits are missing from the log.
    unlogged: bool,
}

/// How far to advance a merge.
#[derive(Clone, Copy)]
enum Goal {
    /// Until this many thousandths of the entries are merged.
    Part(usize),
    /// For one slice.
    Slice,
}

/// The number, or the largest one of 32 bits where addresses have as many.
fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A part of a whole, in thousandths. In WebAssembly the product exceeds a `usize` from four million
/// entries on.
fn thousandths(part: usize, whole: usize) -> usize {
    to_usize(part as u64 * FULL as u64 / whole.max(1) as u64)
}

/// So many thousandths of a whole.
fn share(whole: usize, thousandths: usize) -> usize {
    to_usize(whole as u64 * thousandths as u64 / FULL as u64)
}

/// Why a merge paused.
#[derive(Clone, Copy)]
enum Pause {
    /// It has reached its goal.
    Slice,
    /// It has written enough for a partial checkpoint.
    Round,
    /// Everything is merged.
    End,
}

impl Merging {
    /// Merged entries, in thousandths.
    fn part(&self) -> usize {
        let passed = self.run.as_ref().map_or(0, |(_, changes)| changes.passed);
        thousandths(self.merged + passed, self.entries)
    }

    /// Advances the merge until it reaches the goal or a round is over.
    fn advance(&mut self, shared: &Shared, free: &FreeSpace, generation: u64, goal: Goal) -> Result<Pause> {
        let entries = match goal {
            Goal::Part(part) if part < FULL => share(self.entries, part),
            _ => usize::MAX,
        };
        loop {
            let Some(part) = self.order.get(self.next) else {
                return Ok(Pause::End);
            };
            let changed_at = self.working.version;
            let Some((name, collection)) = self.working.collections.by_id_mut(part.id) else {
                return Ok(Pause::End);
            };
            let memtable = &mut collection.layers.active;
            if memtable.is_empty() {
                self.next += 1;
                continue;
            }
            let (merge, changes) = self.run.get_or_insert_with(|| {
                // Packing takes space.
                let is_tight = self.round_bytes < TIGHT_ROUND_NODES * shared.config.limits.node_capacity;
                // Entries of all rounds: the remaining ones cover a part of the tree only.
                let merge = Merge::new(collection.root, if is_tight { 0 } else { part.entries });
                let merge = merge.with_packing(collection.packing);
                (merge, MemtableChanges::new(memtable))
            });
            if self.merged + changes.passed >= entries {
                return Ok(Pause::Slice);
            }
            changes.is_over |= part.is_partial && self.written + merge.written_bytes() >= self.round_bytes;
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
            let packed = merge.packed();
            let finished = merge.finish(&mut editor, &mut changes);
            finished.map_err(|error| error.in_collection(name))?;
            collection.root = root;
            collection.changed_at = changed_at;
            collection.packing = packed;
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

    /// Installs the merged trees in the frozen version or a later one.
    fn install(&self, version: &mut Version) {
        version.moves += 1;
        version.install(&self.working, |layers| &layers.active);
    }

    /// Resets the merge to the last checkpoint; returns the extents allocated since.
    fn reset(&mut self) -> Vec<Extent> {
        self.working = self.target.clone();
        self.run = None;
        self.paused = None;
        self.sealing = None;
        self.next = 0;
        self.written = 0;
        self.is_stalled = true;
        std::mem::take(&mut self.draft).take_unpublished()
    }

    /// Extents that are allocated but belong to no version yet.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> + '_ {
        self.draft.unpublished()
    }
}

// Freezing the newest version, and giving its merge up.
impl Writer {
    /// Freezes the newest version. No version may be frozen already.
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
        trace::event!(
            DEBUG,
            "merge began",
            version = newest,
            entries = self.merging.as_ref().map_or(0, |merging| merging.entries),
        );
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
    // Rare: in its callers it would make the compressed WebAssembly module longer.
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
        trace::event!(DEBUG, "merge was abandoned", version = merging.target.version);
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

// The pace of the merge: by commits, by the merging thread, in idle time.
impl Writer {
    /// Fill of the newest version's active memtables, of the log's half, or of the space that waits for the next
    /// checkpoint, whichever is fullest.
    fn fill(&self, shared: &Shared) -> usize {
        let share = shared.config.max_active_bytes() as u64;
        let active = to_usize(shared.newest().active_bytes() as u64 * FULL as u64 / share);
        let log = self.log.as_ref().map_or(0, |log| {
            let start = self.frozen().map_or(0, |frozen| frozen.log_fill);
            if log.fill() >= FULL {
                return FULL;
            }
            log.fill().saturating_sub(start) * FULL / FULL.saturating_sub(start).max(FULL / 10)
        });
        let waiting = to_usize(self.space.waiting_units() * FULL as u64 / self.max_waiting);
        log.max(active).max(waiting)
    }

    /// Whether the log lacks commits that no checkpoint holds.
    pub(crate) fn is_unlogged(&self) -> bool {
        self.unlogged || self.frozen().is_some_and(|frozen| frozen.unlogged)
    }

    /// The frozen version, if there is one.
    pub(super) fn frozen(&self) -> Option<Frozen> {
        self.lent_merge.or(self.merging.as_ref().map(|merging| merging.frozen))
    }

    /// Merges as much as the last commit requires.
    pub(crate) fn pace(&mut self, shared: &Shared) -> Result<()> {
        let fill = self.fill(shared);
        let active_bytes = shared.newest().active_bytes();
        let committed = active_bytes.saturating_sub(std::mem::replace(&mut self.paced_bytes, active_bytes));
        let has_thread = HAS_THREADS && shared.merge_thread.has_merger();
        let part = match fill.checked_sub(HELPED_AT) {
            _ if !has_thread => fill.saturating_mul(FULL) / MERGED_AT,
            late => late.unwrap_or(0).saturating_mul(FULL) / (MERGED_AT - HELPED_AT),
        };
        if HAS_THREADS && self.lent_merge.is_some() {
            let merge_thread = &shared.merge_thread;
            let keeps_up = merge_thread.part() >= part || merge_thread.is_sealing();
            if fill < FULL && keeps_up && !merge_thread.has_returned() {
                return Ok(());
            }
            self.recall(shared)?;
        }
        if let Some(merging) = &self.merging {
            if merging.is_stalled {
                return Ok(());
            }
            if has_thread && fill < FULL {
                return self.help(shared, part, committed);
            }
            if !self.advance(shared, Goal::Part(part))? {
                return Ok(());
            }
            self.seal(shared, true, false)?;
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

    /// Helps the merging thread, which has fallen behind, in proportion to the commit and up to the
    /// next checkpoint. The thread makes the checkpoint, so that no commit waits for its flushes.
    fn help(&mut self, shared: &Shared, part: usize, committed: usize) -> Result<()> {
        for _ in 0..=committed.saturating_mul(HELP_AMPLIFICATION) / SLICE_BYTES {
            let lags = |merging: &Merging| merging.paused.is_none() && merging.part() < part;
            if !self.merging.as_ref().is_some_and(lags) {
                break;
            }
            let pause = self.advance_once(shared, Goal::Slice)?;
            if let Some(merging) = self.merging.as_mut().filter(|_| !matches!(pause, Pause::Slice)) {
                merging.paused = Some(pause);
            }
        }
        // The thread goes on with the merge or makes its checkpoint.
        shared.merge_thread.announce();
        Ok(())
    }

    /// Takes the merge back from the thread that has it, and adopts the checkpoint that the thread
    /// made.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the thread panicked: it is unknown how far the merge came. Otherwise the
    /// error of the checkpoint.
    pub(crate) fn recall(&mut self, shared: &Shared) -> Result<()> {
        if !HAS_THREADS || self.lent_merge.take().is_none() {
            return Ok(());
        }
        match shared.merge_thread.recall() {
            Returned::Merging(merging) => return self.end_seal(shared, *merging),
            Returned::Failed(mut merging) => {
                self.give_back(shared, merging.reset());
                self.merging = Some(*merging);
            }
            Returned::Lost => {
                let cause = "the thread that merged memtables panicked".to_owned();
                shared.flush.fail(&cause);
                return Err(Error::Poisoned { cause: cause.into() });
            }
        }
        Ok(())
    }

    /// Lends the merge in progress to a thread.
    fn lend_merge<'s>(&mut self, shared: &'s Shared, merging: Merging) -> BorrowedMerge<'s> {
        self.lent_merge = Some(merging.frozen);
        #[cfg(feature = "testing")]
        {
            self.merges.lent_merge += 1;
        }
        shared.merge_thread.begin(merging.part(), merging.sealing.is_some());
        BorrowedMerge::new(&shared.merge_thread, merging)
    }

    /// Merges concurrently with commits until a round is over or the merge is recalled, and makes
    /// the checkpoint of a completed round; `false` if there is nothing to merge. Called by the
    /// merging thread.
    ///
    /// The writer lock is held to take the merge, to prepare the checkpoint, and to adopt it, but
    /// not while nodes are merged and files flushed.
    pub(crate) fn merge_beside(shared: &Shared) -> Result<bool> {
        let mut writer = shared.writable()?;
        let Some(merging) = writer.merging.take_if(|merging| !merging.is_stalled) else {
            return Ok(false);
        };
        let mut borrowed = writer.lend_merge(shared, merging);
        let free = writer.space.free.clone();
        let generation = writer.superblock.generation + 1;
        drop(writer);
        loop {
            let advanced = borrowed.slice(|merging| {
                if merging.paused.is_some() {
                    return Ok(false);
                }
                let advanced = merging.advance(shared, &free, generation, Goal::Slice);
                shared.merge_thread.set_part(merging.part());
                if let Ok(pause @ (Pause::Round | Pause::End)) = advanced {
                    merging.paused = Some(pause);
                    return Ok(false);
                }
                advanced.map(|_| true)
            });
            match advanced {
                Some(Ok(true)) if !shared.merge_thread.is_wanted() => continue,
                Some(Err(_)) => borrowed.has_failed = true,
                _ => {}
            }
            break;
        }
        drop(borrowed);
        let mut writer = shared.writable()?;
        writer.recall(shared)?;
        let pause = writer.merging.as_mut().and_then(|merging| merging.paused.take());
        let Some(pause) = pause else {
            return Ok(true);
        };
        if let Some(merging) = writer.begin_seal(shared, matches!(pause, Pause::End), false)? {
            let mut borrowed = writer.lend_merge(shared, merging);
            drop(writer);
            borrowed.slice(|merging| merging.seal(shared));
            drop(borrowed);
            let mut writer = shared.writable()?;
            writer.recall(shared)?;
        }
        Ok(true)
    }

    /// Merges one slice in idle time; returns whether there is more to merge.
    pub(crate) fn merge_idle(&mut self, shared: &Shared) -> Result<bool> {
        if shared.flush.failure().is_some() {
            return Ok(false);
        }
        match &self.merging {
            None if self.lent_merge.is_some() => return Ok(false),
            Some(merging) if merging.is_stalled => return Ok(false),
            // The merging thread makes its checkpoint.
            Some(merging) if merging.paused.is_some() && shared.merge_thread.has_merger() => return Ok(false),
            Some(_) => {
                if self.advance(shared, Goal::Slice)? {
                    self.seal(shared, true, false)?;
                }
            }
            None if self.is_worth_merging(shared) => self.freeze(shared)?,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the active memtables are worth merging before they are full: they change enough of
    /// the trees that little is rewritten in vain.
    fn is_worth_merging(&self, shared: &Shared) -> bool {
        let newest = shared.newest();
        let bytes = newest.active_bytes() as u64;
        let [fresh, active, _] = newest.collections.summary().layers;
        let entries = fresh.entries + active.entries;
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        if self.space.waiting_units() * IDLE_WAITING >= self.max_waiting {
            return true;
        }
        // As a rule a leaf is at most half as large as an inner node may be.
        let leaves = entries as u64 * u64::from(self.superblock.node_bytes / 2);
        let written = leaves.min(self.space.used_units() * unit_bytes + bytes);
        let least = MIN_IDLE_BYTES.min((shared.config.max_active_bytes() / 16) as u64);
        bytes >= least && written <= bytes * IDLE_AMPLIFICATION
    }

    /// Whether a failed merge has to be completed before anything else is committed.
    pub(crate) fn must_merge(&self, shared: &Shared) -> bool {
        self.merging.as_ref().is_some_and(|merging| merging.is_stalled) && self.fill(shared) >= FULL
    }

    /// Merges until the goal is reached; returns whether all frozen entries are merged. A failure
    /// undoes what was merged since the last checkpoint, and the next attempt starts there.
    fn advance(&mut self, shared: &Shared, goal: Goal) -> Result<bool> {
        self.recall(shared)?;
        loop {
            let Some(merging) = &mut self.merging else {
                return Ok(true);
            };
            let pause = match merging.paused.take() {
                Some(pause) => pause,
                None => self.advance_once(shared, goal)?,
            };
            match pause {
                Pause::Slice => return Ok(false),
                Pause::End => return Ok(true),
                Pause::Round => {
                    self.seal(shared, false, false)?;
                    if matches!(goal, Goal::Slice) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Advances the merge to its next pause. A failure undoes what was merged since the last
    /// checkpoint.
    fn advance_once(&mut self, shared: &Shared, goal: Goal) -> Result<Pause> {
        let generation = self.superblock.generation + 1;
        let Some(merging) = &mut self.merging else {
            return Ok(Pause::End);
        };
        let advanced = merging.advance(shared, &self.space.free, generation, goal);
        if advanced.is_err() {
            let taken = merging.reset();
            self.give_back(shared, taken);
        }
        advanced
    }

    /// Bytes to write between two partial checkpoints. The file keeps as many bytes of replaced
    /// nodes until the second of them.
    pub(super) fn round_bytes(&self, shared: &Shared) -> usize {
        let unit_bytes = shared.pager.blocks.unit_bytes() as u64;
        let least = MIN_ROUND_BYTES.min(shared.config.cache_bytes as u64 / 8);
        let bytes = (self.space.used_units() * unit_bytes / ROUNDS).max(least);
        let most = if self.has_limits(shared) {
            self.available_bytes(shared) / 4
        } else {
            u64::MAX
        };
        let bytes = bytes.min(most);
        to_usize(bytes).max(MIN_ROUND_NODES * shared.config.limits.node_capacity)
    }

    /// Merges everything frozen and makes its checkpoint.
    pub(crate) fn finish_merging(&mut self, shared: &Shared) -> Result<()> {
        self.advance(shared, Goal::Part(FULL))?;
        self.seal(shared, true, false)
    }

    /// Makes a checkpoint of the newest version, unless the last one contains it.
    pub(crate) fn checkpoint_if_behind(&mut self, shared: &Shared) -> Result<()> {
        if self.durable.version == shared.newest().version {
            return Ok(());
        }
        match self.checkpoint_newest(shared, false) {
            Err(Error::StorageFull { .. }) if self.reclaim_space(shared)? => self.checkpoint_if_behind(shared),
            made => made,
        }
    }

    /// Makes the newest version durable and visible. On failure nothing changes, except that the
    /// writer may be poisoned.
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
        self.seal(shared, true, closing)
    }
}

// The checkpoints of a merge: prepared under the writer lock, flushed with or without it, and then adopted.
impl Merging {
    /// Makes the prepared checkpoint durable.
    pub(super) fn seal(&mut self, shared: &Shared) {
        if let Some(sealing) = &mut self.sealing {
            sealing.outcome = Some(sealing.prepared.seal(shared));
        }
    }
}

impl Writer {
    /// Makes the checkpoint of a paused merge: of the part that is merged, or, at its end, of the
    /// frozen version.
    pub(super) fn seal(&mut self, shared: &Shared, is_end: bool, closing: bool) -> Result<()> {
        let Some(mut merging) = self.begin_seal(shared, is_end, closing)? else {
            return Ok(());
        };
        merging.seal(shared);
        self.end_seal(shared, merging)
    }

    /// Writes everything of that checkpoint but its superblock, and takes the merge out of the
    /// writer. On failure the merge goes back to the last checkpoint.
    pub(super) fn begin_seal(&mut self, shared: &Shared, is_end: bool, closing: bool) -> Result<Option<Merging>> {
        let Some(mut merging) = self.merging.take() else {
            return Ok(None);
        };
        let is_partial = !is_end;
        let (mut state, log) = if is_partial {
            (self.partial_state(&merging), self.superblock.log)
        } else {
            (merging.working.clone(), merging.log)
        };
        debug_assert!(
            merging.draft.released.is_empty(),
            "between two checkpoints each tree is merged once"
        );
        state.moves = shared.newest().moves + 1;
        let checkpoint = Checkpoint {
            log,
            closing,
            part_of: is_partial.then_some(merging.target.version),
        };
        match self.prepare(shared, &mut state, &merging.draft, &checkpoint) {
            Ok(prepared) => {
                merging.sealing = Some(Sealing {
                    state,
                    prepared,
                    outcome: None,
                });
                Ok(Some(merging))
            }
            Err(error) => {
                let taken = merging.reset();
                self.give_back(shared, taken);
                self.merging = Some(merging);
                Err(error)
            }
        }
    }

    /// The version of the newest checkpoint with the trees as far as they are merged. They hold
    /// some of the frozen version's changes and the log all of them: replay applies those once
    /// more, with the same outcome.
    fn partial_state(&self, merging: &Merging) -> Version {
        let mut state = (*self.durable).clone();
        for part in merging.order.iter().filter(|part| part.is_partial) {
            if let Some((_, merged)) = merging.working.collections.by_id(part.id)
                && let Some((_, collection)) = state.collections.by_id_mut(part.id)
            {
                collection.root = merged.root;
                collection.changed_at = collection.changed_at.max(merged.changed_at);
            }
        }
        state
    }

    /// Adopts the checkpoint whose superblock was written. A merge that is not over returns to the
    /// writer.
    // Rare: in its callers it would make the compressed WebAssembly module longer.
    #[inline(never)]
    pub(super) fn end_seal(&mut self, shared: &Shared, mut merging: Merging) -> Result<()> {
        let Some(mut sealing) = merging.sealing.take() else {
            self.merging = Some(merging);
            return Ok(());
        };
        let is_partial = sealing.prepared.checkpoint.is_partial();
        let mut draft = std::mem::take(&mut merging.draft);
        let install = |version: &mut Version| merging.install(version);
        let outcome = sealing.outcome.unwrap_or_else(|| sealing.prepared.seal(shared));
        let completed = self.complete(
            shared,
            &sealing.state,
            &mut draft,
            sealing.prepared,
            outcome,
            Some((merging.target.version, &install)),
        );
        merging.draft = draft;
        if let Err(error) = completed {
            let taken = merging.reset();
            self.give_back(shared, taken);
            self.merging = Some(merging);
            return Err(error);
        }
        if !is_partial {
            trace::event!(
                DEBUG,
                "merge ended",
                version = merging.target.version,
                entries = merging.entries
            );
            self.continue_log(shared, merging.frozen.unlogged);
            return self.reclaim_waiting(shared);
        }
        merging.target = merging.working.clone();
        merging.written = 0;
        merging.round_bytes = self.round_bytes(shared);
        self.merging = Some(merging);
        if self.is_tight(shared) {
            self.overwrite_older(shared)?;
        }
        Ok(())
    }
}

// Merges of a transaction or of replay, in one go.
impl Writer {
    /// Merges the memtables of all collections of `state` into their trees. The new nodes are the
    /// draft's spilled blocks: only a checkpoint makes them part of the database, and without one,
    /// freeing them undoes everything. After an error the state is unusable.
    pub(crate) fn merge_into_draft(&mut self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        if !state.collections.summary().has_changes() {
            return Ok(());
        }
        // The nodes written here belong to the next checkpoint, so none may be under way.
        self.recall(shared)?;
        #[cfg(feature = "testing")]
        {
            self.merges.in_draft += 1;
        }
        // Only once: nodes already written belong to the checkpoint that follows the newest
        // superblock.
        if draft.spilled.is_empty() {
            self.reclaim_quarantine(shared)?;
        }
        self.merge_all(shared, state, draft)
    }

    /// As [`merge_into_draft`](Self::merge_into_draft), where no checkpoint is under way. Writes nothing but blocks.
    pub(crate) fn merge_all(&self, shared: &Shared, state: &mut Version, draft: &mut Draft) -> Result<()> {
        // A snapshot of this version may still read the old blocks.
        state.moves += 1;
        let generation = self.superblock.generation + 1;
        let version = state.version;
        for id in state.collections.select(Summary::has_changes) {
            let Some((name, collection)) = state.collections.by_id_mut(id) else {
                continue;
            };
            let Layers { fresh, active, frozen } = std::mem::take(&mut collection.layers);
            for layers in [vec![frozen], vec![active, fresh]] {
                let entries: usize = layers.iter().map(Memtable::most_entries).sum();
                if entries == 0 {
                    continue;
                }
                let mut root = collection.root;
                let mut editor = Editor {
                    pager: &shared.pager,
                    draft: &mut *draft,
                    free: &self.space.free,
                    root: &mut root,
                    owner: collection.id,
                    generation,
                    compression: shared.config.compression,
                    limits: shared.config.limits,
                };
                let mut changes = MergedChanges::new(layers);
                let merge = Merge::new(collection.root, entries).with_packing(collection.packing);
                let merged = merge.run(&mut editor, &mut changes);
                merged.map_err(|error| error.in_collection(name))?;
                collection.root = root;
                collection.changed_at = version;
            }
        }
        // Nodes that one merge wrote and the next one replaced.
        for extent in draft.released.drain(..) {
            shared.pager.remove(PageId::disk(extent.start));
            self.space.free.free(extent)?;
        }
        Ok(())
    }

    /// Frees the extents that only the older superblock reaches, by overwriting it with the newest. The file
    /// then needs space for two copies of its trees rather than three: that of the last checkpoint
    /// and the one about to be written.
    fn reclaim_quarantine(&mut self, shared: &Shared) -> Result<()> {
        let units = self.reclaimable_units(shared);
        if units * RECLAIMED_PART < self.space.used_units() {
            return Ok(());
        }
        self.reclaim_older(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_many_entries_are_exact() {
        let most = i32::MAX as usize;
        for whole in [1, 999, 4_294_968, 100_000_000, most] {
            assert_eq!(thousandths(whole, whole), FULL);
            assert_eq!(share(whole, FULL), whole);
            assert!(share(whole, 999) <= whole && share(whole, 999) >= whole / 2, "{whole}");
        }
        assert_eq!(thousandths(0, 0), 0);
        assert_eq!(share(8_000_000, 250), 2_000_000);
        assert_eq!(thousandths(2_000_000, 8_000_000), 250);
    }

    /// A round of a file of 64 GiB has more bytes than an address of WebAssembly.
    #[test]
    fn long_rounds_stay_long() {
        assert!(to_usize(1 << 32) >= u32::MAX as usize);
        assert!(to_usize(u64::MAX) == usize::MAX);
    }
}
