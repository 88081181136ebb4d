//! The change feed: the names under which it is stored, the in-memory changes where none is stored, and changes as
//! followers get them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::expiry::HIDDEN;
use crate::error::{Error, Result};
use crate::log::{Operation, Operations};
use crate::node::cell::get_varint;
use crate::small_map::SmallMap;

/// Name of the hidden collection that holds the feed.
pub(crate) const FEED: &str = "\0feed";
/// First characters of names of collections that no feed captures.
pub(crate) const PRIVATE: &str = "mangrove:private/";
/// Key of the record that states how many commits to keep, u64 little-endian. It sorts before all
/// chunks.
pub(crate) const RETENTION: &[u8] = b"";
/// Memory limit for changes that listeners have not taken yet.
const MAX_BYTES: usize = 32 << 20;

/// Part of a commit's changes.
pub(crate) struct Chunk {
    pub version: u64,
    pub number: u32,
    pub bytes: Vec<u8>,
}

pub(crate) fn chunk_key(version: u64, number: u32) -> Vec<u8> {
    let mut key = version.to_be_bytes().to_vec();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Version of the commit that a chunk describes; `None` for another key of the feed.
pub(crate) fn chunk_version(key: &[u8]) -> Option<u64> {
    key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// In-memory changes for listeners where no feed is stored.
#[derive(Default)]
pub(crate) struct Feed {
    chunks: VecDeque<(u64, Arc<[u8]>)>,
    bytes: usize,
    /// The version up to which each listener has taken the changes.
    listeners: BTreeMap<u64, u64>,
    /// Number of listeners that have taken everything up to a version.
    taken: BTreeMap<u64, u64>,
    next: u64,
    /// All commits after this version are held here.
    pub horizon: u64,
    /// The newest commit that was made while nobody listened. It may be invisible still.
    unheld: u64,
}

impl Feed {
    /// Whether there are listeners.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(crate) fn enter(&mut self, version: u64) -> u64 {
        if self.listeners.is_empty() {
            self.horizon = version.max(self.unheld);
        }
        self.join(version)
    }

    /// As [`enter`](Self::enter), for a listener that starts where another one stands.
    pub(crate) fn join(&mut self, version: u64) -> u64 {
        self.next += 1;
        self.listeners.insert(self.next, version);
        *self.taken.entry(version).or_default() += 1;
        self.next
    }

    pub(crate) fn leave(&mut self, listener: u64) {
        if let Some(version) = self.listeners.remove(&listener) {
            self.depart(version);
        }
    }

    pub(crate) fn advance(&mut self, listener: u64, version: u64) {
        *self.taken.entry(version).or_default() += 1;
        if let Some(before) = self.listeners.insert(listener, version) {
            self.depart(before);
        }
    }

    /// Called when a listener has advanced past `version` or left. Drops the chunks that all
    /// listeners have taken.
    fn depart(&mut self, version: u64) {
        let Some(count) = self.taken.get_mut(&version) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.taken.remove(&version);
        let taken = self.taken.first_key_value().map_or(u64::MAX, |(version, _)| *version);
        while self.chunks.front().is_some_and(|(version, _)| *version <= taken) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((version, bytes)) = self.chunks.pop_front() {
            self.bytes -= bytes.len();
            self.horizon = self.horizon.max(version);
        }
    }

    /// All chunks of the first commit after `version`.
    pub(crate) fn after(&self, version: u64) -> Vec<(u64, Arc<[u8]>)> {
        let start = self.chunks.partition_point(|(other, _)| *other <= version);
        let Some((first, _)) = self.chunks.get(start) else {
            return Vec::new();
        };
        let commit = self.chunks.range(start..).take_while(|(other, _)| other == first);
        commit.cloned().collect()
    }

    /// Records commits newer than all before. `None`: there was no listener when the transaction
    /// began.
    pub(crate) fn push(&mut self, version: u64, chunks: Option<Vec<Chunk>>) {
        if !self.is_wanted() {
            self.unheld = version;
            return;
        }
        let Some(chunks) = chunks else {
            self.horizon = version;
            self.chunks.clear();
            self.bytes = 0;
            return;
        };
        for chunk in chunks {
            self.bytes += chunk.bytes.len();
            self.chunks.push_back((chunk.version, chunk.bytes.into()));
        }
        while self.bytes > MAX_BYTES {
            // A commit is dropped as a whole.
            let Some(oldest) = self.chunks.front().map(|(version, _)| *version) else {
                break;
            };
            while self.chunks.front().is_some_and(|(version, _)| *version == oldest) {
                self.drop_oldest();
            }
        }
    }
}

/// One change of a commit. Names are those at the time of the change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A record was stored.
    Set {
        /// Name of the collection.
        collection: String,
        /// Key of the record.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// When it expires, in milliseconds since 1970.
        expires_at: Option<u64>,
    },
    /// A record was removed.
    Delete {
        /// Name of the collection.
        collection: String,
        /// Key of the record.
        key: Vec<u8>,
        /// Nobody deleted it: it had expired, and was removed to free its space.
        expired: bool,
    },
    /// All records of a range were removed.
    Clear {
        /// Lower bound of the range.
        collection: String,
        /// Upper bound of the range.
        lower: Bound<Vec<u8>>,
        /// Where it ends.
        upper: Bound<Vec<u8>>,
    },
    /// A collection was created.
    Create {
        /// Its name.
        collection: String,
    },
    /// A collection got its codec ids.
    Codecs {
        /// Its name.
        collection: String,
        /// Id of the key codec.
        key_codec: String,
        /// Id of the value codec.
        value_codec: String,
    },
    /// A collection was removed with all its records.
    Drop {
        /// Its name.
        collection: String,
    },
    /// A collection was renamed.
    Rename {
        /// Its old name.
        from: String,
        /// Its new name.
        to: String,
    },
}

/// The changes of one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Commit {
    /// Its version.
    pub version: u64,
    /// Its changes in order.
    pub changes: Vec<Change>,
}

/// Decodes a chunk and appends its changes.
pub(crate) fn decode_changes(bytes: &[u8], changes: &mut Vec<Change>) -> Result<()> {
    let malformed = || Error::corrupt("a chunk of the feed is malformed");
    let mut names = SmallMap::default();
    let mut rest = bytes;
    let (count, taken) = get_varint(rest).ok_or_else(malformed)?;
    rest = &rest[taken..];
    for _ in 0..count {
        let (id, taken) = get_varint(rest).ok_or_else(malformed)?;
        let (len, more) = get_varint(&rest[taken..]).ok_or_else(malformed)?;
        let start = taken + more;
        let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len));
        let name = end.and_then(|end| rest.get(start..end)).ok_or_else(malformed)?;
        names.insert(id, String::from_utf8(name.to_vec()).map_err(|_| malformed())?);
        rest = &rest[start + name.len()..];
    }
    for operation in Operations::new(rest) {
        if let Some(change) = to_change(&operation?, &mut names) {
            changes.push(change);
        }
    }
    Ok(())
}

fn to_change(operation: &Operation<'_>, names: &mut SmallMap<u64, String>) -> Option<Change> {
    let name = |names: &SmallMap<u64, String>, id: u32| {
        let name = names.get(&u64::from(id)).cloned().unwrap_or_default();
        (!name.starts_with(HIDDEN)).then_some(name)
    };
    Some(match *operation {
        Operation::Set {
            collection,
            key,
            value,
            expires,
            ..
        } => Change::Set {
            collection: name(names, collection)?,
            key: key.to_vec(),
            value: value.to_vec(),
            expires_at: (expires != 0).then_some(expires),
        },
        Operation::Delete { collection, key } => Change::Delete {
            collection: name(names, collection)?,
            key: key.to_vec(),
            expired: false,
        },
        Operation::Expire { collection, key } => Change::Delete {
            collection: name(names, collection)?,
            key: key.to_vec(),
            expired: true,
        },
        Operation::Clear {
            collection,
            lower,
            upper,
        } => Change::Clear {
            collection: name(names, collection)?,
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
        },
        Operation::Create { collection, .. } => Change::Create {
            collection: name(names, collection)?,
        },
        Operation::Codecs {
            collection,
            key_codec,
            value_codec,
        } => Change::Codecs {
            collection: name(names, collection)?,
            key_codec: key_codec.to_owned(),
            value_codec: value_codec.to_owned(),
        },
        Operation::Drop { collection } => Change::Drop {
            collection: name(names, collection)?,
        },
        Operation::Rename { collection, name: to } => {
            let from = name(names, collection)?;
            names.insert(u64::from(collection), to.to_owned());
            Change::Rename {
                from,
                to: to.to_owned(),
            }
        }
        Operation::SetOutOfLine { .. } | Operation::Indexes { .. } | Operation::End => return None,
    })
}
