//! The details of errors, with their texts.

use std::fmt::{self, Display, Formatter};
use std::ops::Deref;

/// A text in an [`Error`](super::Error); derefs to `str`.
///
/// It is one pointer long. Every `?` moves an error, and a `String` in each variant made that a
/// twentieth of the WebAssembly module.
#[derive(Clone, PartialEq, Eq, Hash)]
#[allow(clippy::box_collection, reason = "the box is what makes it short")]
pub struct Text(Box<String>);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Box::new(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

/// Maximum number of key bytes shown in a message.
const SHOWN_BYTES: usize = 32;

/// The front of a key in hexadecimal.
pub(super) struct Hex<'a>(pub &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        for byte in self.0.iter().take(SHOWN_BYTES) {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(if self.0.len() > SHOWN_BYTES { ".." } else { "" })
    }
}

/// Where damaged bytes were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The fault, in one sentence.
    pub what: String,
    /// First allocation unit of the block, if known.
    pub unit: Option<u64>,
    /// Name of the collection, if known.
    pub collection: Option<String>,
    /// Lower and upper bound of the keys that the block covered, if known.
    pub key_range: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Corruption {
    /// Creates a corruption without a place.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            unit: None,
            collection: None,
            key_range: None,
        }
    }
}

impl Display for Corruption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt database: {}", self.what)?;
        if let Some(unit) = self.unit {
            write!(f, ", unit {unit}")?;
        }
        if let Some(collection) = &self.collection {
            write!(f, ", collection \"{collection}\"")?;
        }
        if let Some((lower, upper)) = &self.key_range {
            write!(f, ", keys from {} to ", Hex(lower))?;
            match upper {
                Some(upper) => Hex(upper).fmt(f)?,
                None => f.write_str("the end")?,
            }
        }
        f.write_str("; the file was not changed")
    }
}

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

impl Display for TooLarge {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { len_bytes, max_bytes } = self;
        write!(f, "has {len_bytes} bytes, at most {max_bytes} are allowed")
    }
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

impl Display for IndexRefusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            collection,
            index,
            what,
        } = self;
        write!(f, "collection \"{collection}\", index \"{index}\": {what}")
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
    pub fn message(&self, index_key: &str, [stored, other]: [&str; 2]) -> String {
        let Self { collection, index, .. } = self;
        format!(
            "the key {index_key} of the unique index \"{index}\" of collection \"{collection}\" belongs to the record \
             {stored}, so {other} cannot have it; nothing was stored"
        )
    }
}

impl Display for NotUnique {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = |key: &[u8]| Hex(key).to_string();
        let [stored, other] = &self.keys;
        f.write_str(&self.message(&text(&self.index_key), [&text(stored), &text(other)]))
    }
}

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

impl Conflict {
    /// The message, with `key` as the text of the key.
    ///
    /// A caller that knows the key encoding can show the key in its original form.
    #[must_use]
    pub fn message(&self, key: &str) -> String {
        let of_collection = match self.collection.as_deref() {
            None | Some("") => String::new(),
            Some(name) => format!(" of collection \"{name}\""),
        };
        let subject = match self.key {
            Some(_) => format!("key {key}{of_collection}"),
            None => format!("what the transaction read{of_collection}"),
        };
        let version = |version: Option<u64>| match version {
            Some(version) => format!("version {version}"),
            None => "no entry".to_owned(),
        };
        match self.reason {
            ConflictReason::TooMany => {
                "too many commits were made since the transaction began to compare it with them; run it again"
                    .to_owned()
            }
            ConflictReason::Lost => {
                "the transaction is lost with the process or tab that kept it; run it again".to_owned()
            }
            ConflictReason::Changed => format!("{subject} was changed by another commit; run the transaction again"),
            ConflictReason::Version { expected, found } => format!(
                "{subject} has {}, the check expects {}; read it and try again",
                version(found),
                version(expected)
            ),
        }
    }
}

impl Display for Conflict {
    /// Shows the key as it is, as far as it is printable.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().unwrap_or_default();
        let shown = &key[..key.len().min(SHOWN_BYTES)];
        let more = if key.len() > SHOWN_BYTES { "…" } else { "" };
        f.write_str(&self.message(&format!("{}{more}", shown.escape_ascii())))
    }
}
