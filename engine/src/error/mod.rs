//! The crate's only error type.
//!
//! Each variant names what failed and what can be done about it. [`Error::code`] is stable across
//! releases and across the language boundary.

use std::fmt;

mod details;

pub use details::{
    BackupDamage, CodecMismatch, Conflict, ConflictReason, Corruption, IndexRefusal, IoFailure, NotUnique, Text,
    TooLarge, TooMany, WrongBase,
};

/// Result of every fallible operation of the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the engine. Corruption carries its place, invalid arguments the limit they exceed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The storage refused a read, write, flush or resize.
    Io(Box<IoFailure>),
    /// The storage is full; nothing of the failed transaction is visible.
    StorageFull {
        /// The write that failed.
        context: Text,
    },
    /// The file's bytes differ from those written.
    Corrupt(Box<Corruption>),
    /// A backup's bytes differ from those written, or some are missing.
    CorruptBackup(Box<BackupDamage>),
    /// The file exists but was not created by Mangrove.
    NotADatabase {
        /// Name of the file.
        file: Text,
    },
    /// The database is encrypted, and the key is missing or another one. Without the feature
    /// `encryption` it is always missing. Nothing was changed.
    WrongKey {
        /// It was opened without a key.
        is_missing: bool,
    },
    /// Only with the feature `encryption`: the database was opened with a key, but is not encrypted.
    /// Nothing was changed.
    #[cfg(feature = "encryption")]
    NotEncrypted,
    /// The file was written by a newer release.
    VersionUnsupported {
        /// Format version found in the file.
        found: u16,
        /// Newest format version this build reads.
        supported: u16,
    },
    /// Another process, tab or handle has the database open.
    Locked {
        /// Name of the database or file.
        file: Text,
    },
    /// A file was removed, renamed or replaced while the database was open, so nobody can find what
    /// is written to it. Reads continue; writes are refused until the database is opened again.
    Evicted {
        /// Name of the file.
        file: Text,
    },
    /// The requested database does not exist.
    NotFound {
        /// The requested object.
        what: Text,
    },
    /// The database or collection exists already.
    AlreadyExists {
        /// The object that exists.
        what: Text,
    },
    /// A write was attempted on a read-only handle.
    ReadOnly,
    /// The handle was closed.
    Closed,
    /// A flush or superblock write failed, so the state on disk is unknown. Reads continue; writes
    /// are refused until the database is opened again.
    Poisoned {
        /// The failure that caused it.
        cause: Text,
    },
    /// A key exceeds the limit of this database.
    KeyTooLarge(Box<TooLarge>),
    /// A value exceeds the limit of the format.
    ValueTooLarge(Box<TooLarge>),
    /// An option or argument is out of range.
    InvalidArgument {
        /// Which one, and the allowed range.
        what: Text,
    },
    /// A later commit conflicts with an optimistic transaction. It wrote what the transaction read
    /// or, under snapshot isolation, wrote. Nothing was changed; run it again.
    Conflict(Box<Conflict>),
    /// A snapshot, with all that was open in it, is lost with the process or tab that held it.
    SnapshotLost,
    /// The limit on open objects of one kind is reached.
    TooManyOpen(Box<TooMany>),
    /// The requested changes are no longer retained.
    TruncatedFeed {
        /// Changes after this version are retained.
        horizon: Box<u64>,
    },
    /// A reader beside a writer is out of date: the writer has reused blocks of its state. Call
    /// [`Database::refresh`](crate::Database::refresh).
    Stale,
    /// The database was created with a key order that this version does not support.
    KeyOrderUnsupported {
        /// Name of the key order.
        order: Text,
    },
    /// An incremental backup requires another base version than the database has.
    WrongBase(Box<WrongBase>),
    /// A collection was opened with codecs other than those it was written with.
    CodecMismatch(Box<CodecMismatch>),
    /// A write lacks the keys of an index, or an index is declared otherwise than it is stored.
    IndexMismatch(Box<IndexRefusal>),
    /// An index cannot be read before it is built.
    IndexIncomplete(Box<IndexRefusal>),
    /// A write would give two records the same key in a unique index.
    NotUnique(Box<NotUnique>),
}

impl Error {
    /// Creates a failure of the storage: the failed operation, with file and offset, and what the
    /// operating system or host says of it.
    #[must_use]
    pub fn io(context: impl Into<Text>, source: impl Into<Text>) -> Self {
        Self::Io(Box::new(IoFailure {
            context: context.into(),
            source: source.into(),
        }))
    }

    /// Creates a conflict in a collection, at a key, as far as they are known.
    #[must_use]
    pub fn conflict(collection: Option<&str>, key: Option<&[u8]>, reason: ConflictReason) -> Self {
        Self::Conflict(Box::new(Conflict {
            collection: collection.map(Into::into),
            key: key.map(Into::into),
            reason,
        }))
    }

    /// Creates the error of a key with `len_bytes` bytes where `max_bytes` are allowed.
    #[must_use]
    pub fn key_too_large(len_bytes: usize, max_bytes: usize) -> Self {
        Self::KeyTooLarge(Box::new(TooLarge { len_bytes, max_bytes }))
    }

    /// Creates the error of a value with `len_bytes` bytes where `max_bytes` are allowed.
    #[must_use]
    pub fn value_too_large(len_bytes: usize, max_bytes: usize) -> Self {
        Self::ValueTooLarge(Box::new(TooLarge { len_bytes, max_bytes }))
    }

    /// Creates the error of a limit on open objects. `what` names their kind, and what to do.
    #[must_use]
    pub fn too_many_open(what: &'static str, limit: usize) -> Self {
        Self::TooManyOpen(Box::new(TooMany { what, limit }))
    }

    /// Creates the error of a collection opened with the wrong codecs.
    #[must_use]
    pub fn codec_mismatch(collection: impl Into<Text>, stored: impl Into<Text>, requested: impl Into<Text>) -> Self {
        Self::CodecMismatch(Box::new(CodecMismatch {
            collection: collection.into(),
            stored: stored.into(),
            requested: requested.into(),
        }))
    }

    /// An index of `collection` is not what the caller declared: `what` says why, and what to do.
    #[must_use]
    pub fn index_mismatch(collection: &str, index: &str, what: &'static str) -> Self {
        Self::IndexMismatch(IndexRefusal::new(collection, index, what))
    }

    pub(crate) fn index_incomplete(collection: &str, index: &str) -> Self {
        let what = "it is being built; read it once it is complete";
        Self::IndexIncomplete(IndexRefusal::new(collection, index, what))
    }

    pub(crate) fn corrupt_backup(what: impl Into<Text>, offset: u64) -> Self {
        Self::CorruptBackup(Box::new(BackupDamage {
            what: what.into(),
            offset,
        }))
    }

    pub(crate) fn wrong_base(base: u64, version: u64) -> Self {
        Self::WrongBase(Box::new(WrongBase { base, version }))
    }

    /// Creates a corruption of the block that starts at `unit`.
    pub(crate) fn corrupt_at(unit: u64, what: impl Into<String>) -> Self {
        Self::Corrupt(Box::new(Corruption {
            unit: Some(unit),
            ..Corruption::new(what)
        }))
    }

    /// Creates a corruption without a known place.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(Box::new(Corruption::new(what)))
    }

    /// Adds the collection's name to a corruption without one.
    #[must_use]
    pub(crate) fn in_collection(mut self, name: &str) -> Self {
        if let Self::Corrupt(corruption) = &mut self
            && corruption.collection.is_none()
        {
            corruption.collection = Some(name.to_owned());
        }
        self
    }

    /// Adds the covered key range to a corruption without one.
    #[must_use]
    pub(crate) fn covering(mut self, lower: &[u8], upper: Option<&[u8]>) -> Self {
        if let Self::Corrupt(corruption) = &mut self
            && corruption.key_range.is_none()
        {
            corruption.key_range = Some((lower.to_vec(), upper.map(<[u8]>::to_vec)));
        }
        self
    }

    /// Stable code, the same in Rust and JavaScript.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io(_) | Self::Poisoned { .. } => "KV_IO",
            Self::StorageFull { .. } => "KV_QUOTA_EXCEEDED",
            Self::Corrupt(_) | Self::CorruptBackup(_) | Self::NotADatabase { .. } => "KV_CORRUPT",
            Self::VersionUnsupported { .. } | Self::KeyOrderUnsupported { .. } => "KV_VERSION_UNSUPPORTED",
            Self::WrongKey { .. } => "KV_WRONG_KEY",
            #[cfg(feature = "encryption")]
            Self::NotEncrypted => "KV_NOT_ENCRYPTED",
            Self::Locked { .. } => "KV_LOCKED",
            Self::Evicted { .. } => "KV_EVICTED",
            Self::NotFound { .. } => "KV_NOT_FOUND",
            Self::AlreadyExists { .. } => "KV_EXISTS",
            Self::ReadOnly => "KV_READ_ONLY",
            Self::Closed => "KV_CLOSED",
            Self::KeyTooLarge(_) => "KV_KEY_TOO_LARGE",
            Self::ValueTooLarge(_) => "KV_VALUE_TOO_LARGE",
            Self::InvalidArgument { .. } | Self::WrongBase(_) => "KV_INVALID_ARGUMENT",
            Self::CodecMismatch(_) => "KV_CODEC_MISMATCH",
            Self::IndexMismatch(_) => "KV_INDEX_MISMATCH",
            Self::IndexIncomplete(_) => "KV_INDEX_INCOMPLETE",
            Self::NotUnique(_) => "KV_UNIQUE",
            Self::Conflict(_) => "KV_CONFLICT",
            Self::Stale => "KV_STALE",
            Self::SnapshotLost => "KV_SNAPSHOT_LOST",
            Self::TooManyOpen(_) => "KV_TOO_MANY_OPEN",
            Self::TruncatedFeed { .. } => "KV_TRUNCATED_FEED",
        }
    }

    /// Whether the same call can succeed later without a change to the program.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. }
                | Self::StorageFull { .. }
                | Self::Conflict(_)
                | Self::SnapshotLost
                | Self::TooManyOpen(_)
                | Self::IndexIncomplete(_)
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(failure) => write!(f, "{}: {}", failure.context, failure.source),
            Self::StorageFull { context } => write!(
                f,
                "{context}: no space left; the transaction was undone, free some space and try again"
            ),
            Self::Corrupt(corruption) => corruption.fmt(f),
            Self::CorruptBackup(damage) => write!(
                f,
                "corrupt backup: {}, at byte {}; nothing was restored, use another copy of it",
                damage.what, damage.offset
            ),
            Self::NotADatabase { file } => write!(
                f,
                "{file} is not a Mangrove database; it was not changed, choose another path"
            ),
            Self::VersionUnsupported { found, supported } => write!(
                f,
                "the database has format version {found}, this build reads {supported}; use a build that reads it"
            ),
            #[cfg(feature = "encryption")]
            Self::WrongKey { is_missing: false } => {
                f.write_str("the key is not that of the database; it was not changed")
            }
            Self::WrongKey { .. } => f.write_str("the database is encrypted; open it with its key"),
            #[cfg(feature = "encryption")]
            Self::NotEncrypted => f.write_str("the database is not encrypted; open it without a key"),
            Self::Locked { file } => write!(
                f,
                "{file} is open in another process, tab or handle; close it there first"
            ),
            Self::Evicted { file } => write!(f, "{file} was removed, renamed or replaced; open the database again"),
            Self::NotFound { what } => write!(f, "{what} does not exist"),
            Self::AlreadyExists { what } => write!(f, "{what} exists already"),
            Self::ReadOnly => f.write_str("the database was opened read-only"),
            Self::Closed => f.write_str("the database is closed"),
            Self::SnapshotLost => f.write_str(
                "the snapshot is lost with the tab that kept it, and the database has changed since; take a new one",
            ),
            Self::TooManyOpen(many) => write!(f, "there may be no more than {} {}", many.limit, many.what),
            Self::Poisoned { cause } => write!(
                f,
                "writes are refused after an earlier failure ({cause}); reads continue, reopen the database to write"
            ),
            Self::KeyTooLarge(key) => write!(f, "the key {key}"),
            Self::ValueTooLarge(value) => write!(f, "the value {value}"),
            Self::InvalidArgument { what } => f.write_str(what),
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::TruncatedFeed { horizon } => write!(
                f,
                "changes up to version {horizon} are no longer kept; start with a new snapshot"
            ),
            Self::Stale => f.write_str(
                "the writer has overwritten what this reader had opened; refresh the database and read again",
            ),
            Self::KeyOrderUnsupported { order } => write!(
                f,
                "the database orders its keys by \"{order}\", which this version does not know; use the version that made it"
            ),
            Self::WrongBase(wrong) => write!(
                f,
                "the backup builds on version {}, the database has version {}; restore backups in their order",
                wrong.base, wrong.version
            ),
            Self::CodecMismatch(codecs) => write!(
                f,
                "collection \"{}\" was written with codecs {}, not {}; open it with the former",
                codecs.collection, codecs.stored, codecs.requested
            ),
            Self::IndexMismatch(refusal) | Self::IndexIncomplete(refusal) => refusal.fmt(f),
            Self::NotUnique(records) => records.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_two_words_long() {
        assert_eq!(size_of::<Error>(), 2 * size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<Error>());
    }

    #[test]
    fn messages_show_numbers_and_keys() {
        let mut corruption = Corruption::new("a cell is wrong");
        corruption.unit = Some(u64::MAX);
        corruption.collection = Some("mail".to_owned());
        corruption.key_range = Some((vec![0, 0xa7], Some(vec![0xff; 33])));
        let until = "ff".repeat(32);
        assert_eq!(
            corruption.to_string(),
            format!(
                "corrupt database: a cell is wrong, unit 18446744073709551615, collection \"mail\", keys from 0x00a7 to 0x{until}..; \
                 the file was not changed"
            )
        );
        corruption.key_range = Some((Vec::new(), None));
        assert!(corruption.to_string().contains(", keys from 0x to the end; "));
        assert_eq!(
            Error::key_too_large(2000, 1012).to_string(),
            "the key has 2000 bytes, at most 1012 are allowed"
        );
    }

    #[test]
    fn conflicts_show_printable_keys() {
        let changed =
            |collection, key: Option<&[u8]>| Error::conflict(collection, key, ConflictReason::Changed).to_string();
        let ending = "was changed by another commit; run the transaction again";
        assert_eq!(
            changed(Some("mail"), Some(b"a\n\xff")),
            format!("key a\\n\\xff of collection \"mail\" {ending}")
        );
        assert_eq!(
            changed(None, Some(&[b'x'; 33])),
            format!("key {}… {ending}", "x".repeat(32))
        );
        assert_eq!(changed(None, None), format!("what the transaction read {ending}"));
        let reason = ConflictReason::Version {
            expected: None,
            found: Some(7),
        };
        assert_eq!(
            Error::conflict(Some("mail"), Some(b"k"), reason).to_string(),
            "key k of collection \"mail\" has version 7, the check expects no entry; read it and try again"
        );
    }
}
