//! The details of errors.

use super::{Text, join};

/// A failure of the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoFailure {
    /// The failed operation, with file and offset.
    pub context: Text,
    /// The message of the operating system or host.
    pub source: Text,
}

/// A key or value that exceeds its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLarge {
    /// Its length in bytes.
    pub len_bytes: usize,
    /// Maximum length in bytes.
    pub max_bytes: usize,
}

/// A limit on open objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooMany {
    /// The kind of object, and advice.
    pub what: &'static str,
    /// The limit.
    pub limit: usize,
}

/// Codecs of a collection that differ from those it was written with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecMismatch {
    /// Name of the collection.
    pub collection: Text,
    /// Codec ids stored in the database.
    pub stored: Text,
    /// Codec ids requested.
    pub requested: Text,
}

/// Damage to a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupDamage {
    /// The fault, in one sentence.
    pub what: Text,
    /// Position in the stream, in bytes: that of the damaged frame, or the end.
    pub offset: u64,
}

/// An incremental backup that builds on another version than the database has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongBase {
    /// The base version required.
    pub base: u64,
    /// The version of the database.
    pub version: u64,
}

/// An index that cannot be used as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRefusal {
    /// Name of the collection.
    pub collection: Text,
    /// Name of the index.
    pub index: Text,
    /// The fault, and advice.
    pub what: &'static str,
}

impl IndexRefusal {
    #[allow(clippy::unnecessary_box_returns, reason = "callers would each box it")]
    pub(super) fn new(collection: &str, index: &str, what: &'static str) -> Box<Self> {
        Box::new(Self {
            collection: collection.into(),
            index: index.into(),
            what,
        })
    }
}

/// Two records with the same key in a unique index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotUnique {
    /// Name of the collection.
    pub collection: Text,
    /// Name of the index.
    pub index: Text,
    /// The index key.
    pub index_key: Box<[u8]>,
    /// Keys of the two records; the first is the one that is stored.
    pub keys: [Box<[u8]>; 2],
}

impl NotUnique {
    /// The message, with the texts of the index key, of the stored record's key, and of the
    /// other's.
    ///
    /// A caller that knows the key encodings can show the keys in their original form.
    #[must_use]
    pub fn message(&self, index_key: &str, keys: [&str; 2]) -> String {
        join(&[
            "the key ",
            index_key,
            " of the unique index \"",
            &self.index,
            "\" of collection \"",
            &self.collection,
            "\" belongs to the record ",
            keys[0],
            ", so ",
            keys[1],
            " cannot have it; nothing was stored",
        ])
    }
}
