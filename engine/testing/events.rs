//! Counts of what merges went through, for tests that have to know whether it happened at all.

use crate::database::Database;

/// What happened to the merges of an open database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MergeEvents {
    /// Versions frozen to be merged.
    pub begun: u64,
    /// Merges given up, whose entries became active again.
    pub abandoned: u64,
    /// Loans of a merge, to a thread or for a checkpoint of one.
    pub lent_merge: u64,
    /// Memtables of a transaction merged into its own draft.
    pub in_draft: u64,
    /// Partial checkpoints.
    pub partial: u64,
    /// The newest checkpoint is a partial one.
    pub ends_partial: bool,
}

impl Database {
    /// Counts since the database was opened.
    #[must_use]
    pub fn merge_events(&self) -> MergeEvents {
        self.shared.lock_writer().merges
    }
}
