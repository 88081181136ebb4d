//! Changes of a commit, as delivered to those who follow the commits.

use std::ops::Bound;

use super::expiry::HIDDEN;
use crate::error::{Error, Result};
use crate::log::{Operation, Operations};
use crate::node::cell::get_varint;
use crate::small_map::SmallMap;

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
