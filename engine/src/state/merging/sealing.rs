//! The checkpoints of a merge: prepared under the writer lock, flushed with or without it, and then
//! adopted.

use super::Merging;
use crate::error::Result;
use crate::state::writer::{Checkpoint, Prepared};
use crate::state::{Shared, Version, Writer};

/// A checkpoint of a merge.
pub(super) struct Sealing {
    state: Version,
    prepared: Prepared,
    /// Whether the superblock is durable, once it was written.
    outcome: Option<Result<()>>,
}

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
    #[inline(never)]
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
