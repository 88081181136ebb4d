//! Write transactions: changes collect in a draft and become visible and durable together.
//!
//! There is one writer at a time; readers never wait for it. A commit appends one record to the log
//! ([`commit`]) or, if it is too large for that, makes a checkpoint.

mod batch;
pub(crate) mod capture;
pub(crate) mod clients;
mod commit;
pub(crate) mod indexed;
mod optimistic;
mod records;
mod replay;
mod staged;
mod write;

pub use batch::{BatchOperation, WriteBatch};
pub use indexed::{SliceRecord, WriteIndexed};
pub use optimistic::{IndexScan, Isolation, OptimisticTransaction, Savepoint, TransactionCursor, TransactionScan};
pub use records::{ReadWrite, Update};
pub(crate) use replay::apply_log;
pub use staged::StagedValue;
pub use write::ExclusiveTransaction;

/// Which failures a commit survives. A failure only ever loses the newest commits: a commit is
/// there only if all commits before it are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// On disk when the call returns.
    #[default]
    Strict,
    /// Survives the death of the process when the call returns, and a power cut after the next
    /// flush. The host makes that flush within a bounded time:
    /// [`Database::flush`](crate::Database::flush), a strict commit or a checkpoint.
    Relaxed,
    /// Visible at once; durable with the next strict or relaxed commit, flush, checkpoint or close.
    None,
}

/// A commit that was handed to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submission {
    /// The commit.
    pub info: CommitInfo,
    /// Whether the commit becomes visible, and as durable as requested, only with the next flush.
    pub awaits_flush: bool,
}

/// Result of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitInfo {
    /// Commit sequence number: 1 for the first commit of a database.
    pub version: u64,
}
