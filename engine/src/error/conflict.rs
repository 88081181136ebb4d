//! Conflicts that stop a transaction or fail a check, and their messages.

use std::fmt;

use super::Error;

/// Why a transaction was not committed. It changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Name of the collection, if known.
    pub collection: Option<Box<str>>,
    /// The key, if the conflict is about a single key.
    pub key: Option<Box<[u8]>>,
    /// The kind of conflict.
    pub reason: ConflictReason,
}

/// A change to the data that a transaction depends on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictReason {
    /// Another commit changed it.
    Changed,
    /// A check found another version of the record than expected; `None` means no record.
    Version {
        /// Version that the check expects.
        expected: Option<u64>,
        /// Version of the record.
        found: Option<u64>,
    },
    /// The commits since the transaction began are no longer retained, so it cannot be validated.
    TooMany,
    /// The transaction's state is lost with the process or tab that held it.
    Lost,
}

impl Error {
    /// Creates a conflict in a collection, at a key, as far as they are known.
    #[must_use]
    pub fn conflict(collection: Option<&str>, key: Option<&[u8]>, reason: ConflictReason) -> Self {
        Self::Conflict(Box::new(Conflict {
            collection: collection.map(Into::into),
            key: key.map(Into::into),
            reason,
        }))
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}
