//! Collections: named trees. The catalog is itself a tree, from name to the bytes below.
//!
//! ```text
//!  0  u32  collection id, owner of its blocks; ids are never used again
//!  4  [24] root: block reference, u56 records, u8 flags (all zero: empty)
//! 28  varint length, key codec id; varint length, value codec id
//!     if it has indexes: varint length, their list (see `index`)
//! ```

use std::sync::Arc;

use super::expiry::{HIDDEN, HINTS};
use super::index::{Index, decode_indexes, encode_indexes};
use super::{Collections, Summary};
use crate::error::{Error, Result};
use crate::memtable::{Gaps, LayeredCursor, Layers, Memtable, Records};
use crate::node::Child;
use crate::node::cell::{get_varint, put_bytes};
use crate::pages::Age;
use crate::range::{Direction, KeyRange};
use crate::tree::Pages;
use crate::tree::merge::Packing;

/// Name of the hidden collection that maps a client's name to the outcome stored for it.
pub(crate) const CLIENTS: &str = "\0clients";
/// Maximum length of a collection name in bytes; the key limit also applies.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Maximum length of a codec id in bytes.
pub(crate) const MAX_CODEC_BYTES: usize = 64;

/// A collection as of one version.
#[derive(Debug)]
pub(crate) struct Collection {
    pub id: u32,
    pub root: Option<Child>,
    /// Changes not merged into the tree yet.
    pub layers: Layers,
    /// Version of the commit that created it, or of the last one that removed all its records at
    /// once; 0 if that predates the opening of the database.
    pub emptied_at: u64,
    /// The last checkpoint of an older version may have another catalog entry for it, or none; 0 as
    /// above.
    pub changed_at: u64,
    /// How the leaves of the last merge compressed, for the next one. Not stored.
    pub packing: Option<Packing>,
    pub key_codec: String,
    pub value_codec: String,
    /// Ascending by id; `None` if there are none.
    pub indexes: Option<Arc<[Index]>>,
    /// Gaps that cursors found in this state. Not stored.
    pub gaps: Arc<Gaps>,
}

/// An immutable state of the whole database.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::struct_field_names,
    reason = "the number is what everybody calls the version"
)]
pub(crate) struct Version {
    pub version: u64,
    /// See [`Age`].
    pub moves: u64,
    pub collections: Collections,
}

/// Description of a collection, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// Its name; the default collection's is empty.
    pub name: String,
    /// Number of records, including expired ones that have not been purged yet.
    pub count: u64,
    /// Id of the key codec it was created with.
    pub key_codec: String,
    /// Id of the value codec it was created with.
    pub value_codec: String,
}

impl Clone for Collection {
    fn clone(&self) -> Self {
        // The copy becomes another state.
        Self {
            gaps: Arc::new((*self.gaps).clone()),
            ..self.shared()
        }
    }
}

impl Collection {
    /// The same state, to be read.
    pub(crate) fn shared(&self) -> Self {
        Self {
            id: self.id,
            root: self.root,
            layers: self.layers.clone(),
            emptied_at: self.emptied_at,
            changed_at: self.changed_at,
            packing: self.packing,
            key_codec: self.key_codec.clone(),
            value_codec: self.value_codec.clone(),
            indexes: self.indexes.clone(),
            gaps: Arc::clone(&self.gaps),
        }
    }
}

impl Version {
    /// Whether records may expire.
    pub(crate) fn has_hints(&self) -> bool {
        let first = self.collections.iter_from(HINTS).next();
        first.is_some_and(|(name, _)| name.starts_with(HINTS))
    }

    /// Memory used by the memtables.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.collections.summary().bytes()
    }

    /// Sorts the pending changes of the fresh memtables, so that readers need not.
    pub(crate) fn sort(&mut self) {
        self.change(Summary::has_fresh, |layers| layers.fresh.sort());
    }

    /// Merges the fresh memtables into the active ones.
    pub(crate) fn absorb(&mut self) {
        self.change(Summary::has_fresh, Layers::absorb);
    }

    /// Memory used by the active and the fresh memtables.
    pub(crate) fn active_bytes(&self) -> usize {
        let [fresh, active, _] = self.collections.summary().layers;
        fresh.bytes + active.bytes
    }

    /// Changes the memtables of collections whose summaries are wanted.
    pub(crate) fn change(&mut self, wanted: impl Fn(&Summary) -> bool, apply: impl Fn(&mut Layers)) {
        let changed = self.collections.change(wanted, |_, collection| {
            apply(&mut collection.layers);
            Ok(())
        });
        debug_assert!(changed.is_ok(), "nothing here fails");
    }

    /// Gives collections with frozen memtables the trees of a version into which more of those is
    /// merged, and what is left of them there.
    pub(crate) fn install(&mut self, merged: &Self, left: impl Fn(&Layers) -> &Memtable) {
        let installed = self.collections.change(Summary::has_frozen, |_, collection| {
            if let Some((_, merged)) = merged.collections.by_id(collection.id) {
                collection.root = merged.root;
                collection.packing = merged.packing;
                collection.layers.frozen = left(&merged.layers).clone();
            }
            Ok(())
        });
        debug_assert!(installed.is_ok(), "nothing here fails");
    }

    pub(crate) fn age(&self) -> Age {
        Age {
            version: self.version,
            moves: self.moves,
        }
    }

    pub(crate) fn infos(&self, pages: &impl Pages) -> Vec<CollectionInfo> {
        let info = |(name, collection): (&String, &Collection)| CollectionInfo {
            name: name.clone(),
            count: collection.count(pages),
            key_codec: collection.key_codec.clone(),
            value_codec: collection.value_codec.clone(),
        };
        self.collections
            .iter()
            .filter(|(name, _)| !name.starts_with(HIDDEN))
            .map(info)
            .collect()
    }
}

impl Collection {
    /// Creates an empty collection in the commit of a version.
    pub(crate) fn new(id: u32, version: u64) -> Self {
        Self {
            id,
            root: None,
            layers: Layers::default(),
            emptied_at: version,
            changed_at: version,
            packing: None,
            key_codec: String::new(),
            value_codec: String::new(),
            indexes: None,
            gaps: Arc::default(),
        }
    }

    /// Divides the known gap around a key, whose record is stored.
    pub(crate) fn cut_gap(&mut self, key: &[u8]) {
        match Arc::get_mut(&mut self.gaps) {
            Some(gaps) => gaps.cut(key),
            // Somebody reads this state already.
            None => self.gaps = Arc::default(),
        }
    }

    pub(crate) fn indexes(&self) -> &[Index] {
        self.indexes.as_deref().unwrap_or_default()
    }

    /// The records of its layers and its tree.
    pub(crate) fn records<'a, P: Pages>(&'a self, pages: &'a P) -> Records<'a, P> {
        Records {
            pages,
            root: self.root.as_ref(),
            owner: self.id,
            layers: &self.layers,
            gaps: None,
            now: 0,
        }
    }

    pub(crate) fn cursor(&self, range: &KeyRange<'_>, direction: Direction) -> LayeredCursor {
        LayeredCursor::new(self.root, self.id, &self.layers, range, direction)
    }

    /// Number of records. If counting needs a page that cannot be read, returns the tree's count;
    /// reads of the records will report the error.
    pub(crate) fn count(&self, pages: &impl Pages) -> u64 {
        let in_tree = self.root.map_or(0, |root| root.count);
        self.records(pages).len().unwrap_or(in_tree)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.root.map_or([0; Child::BYTES], |root| root.encode()));
        for codec in [&self.key_codec, &self.value_codec] {
            put_bytes(&mut bytes, codec.as_bytes());
        }
        if !self.indexes().is_empty() {
            put_bytes(&mut bytes, &encode_indexes(self.indexes()));
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let parse = || {
            let id = u32::from_le_bytes(*bytes.first_chunk()?);
            let root = Child::decode_root(bytes.get(4..4 + Child::BYTES)?).ok()?;
            let mut at = 4 + Child::BYTES;
            let mut part = || {
                let (len, taken) = get_varint(bytes.get(at..)?)?;
                let start = at + taken;
                let end = start.checked_add(usize::try_from(len).ok()?)?;
                let part = bytes.get(start..end)?;
                at = end;
                Some(part)
            };
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
            let (key_codec, value_codec) = (text(part()?)?, text(part()?)?);
            let indexes = match part() {
                Some(list) => Some(decode_indexes(list).filter(|indexes| !indexes.is_empty())?),
                None => None,
            };
            (at == bytes.len()).then_some(Self {
                id,
                root,
                layers: Layers::default(),
                emptied_at: 0,
                changed_at: 0,
                packing: None,
                key_codec,
                value_codec,
                indexes,
                gaps: Arc::default(),
            })
        };
        parse().ok_or_else(|| Error::corrupt("a catalog entry is malformed"))
    }
}

/// A record with its metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its value.
    pub value: Vec<u8>,
    /// Version of the commit that wrote it, for later comparison; 0 inside the optimistic
    /// transaction that wrote it.
    pub version: u64,
    /// When it expires, in milliseconds since 1970; `None`: never.
    pub expires_at: Option<u64>,
}

impl Entry {
    /// Creates an entry with these fields.
    #[must_use]
    pub fn new(value: Vec<u8>, version: u64, expires_at: Option<u64>) -> Self {
        Self {
            value,
            version,
            expires_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_with_golden_bytes() {
        let collection = Collection {
            key_codec: "any".to_owned(),
            value_codec: "json".to_owned(),
            ..Collection::new(3, 0)
        };
        let bytes = collection.encode();
        assert_eq!(&bytes[..4], [3, 0, 0, 0]);
        assert_eq!(&bytes[28..], b"\x03any\x04json");
        assert_eq!(Collection::decode(&bytes).unwrap().encode(), bytes);
        for len in 0..bytes.len() {
            assert!(Collection::decode(&bytes[..len]).is_err());
        }
        let plain = bytes;
        let indexed = Collection {
            indexes: decode_indexes(b"\x05\x01n\x01\x03"),
            ..collection
        };
        let bytes = indexed.encode();
        assert_eq!(&bytes[plain.len()..], b"\x05\x05\x01n\x01\x03");
        assert_eq!(Collection::decode(&bytes).unwrap().indexes(), indexed.indexes());
        for len in plain.len() + 1..bytes.len() {
            assert!(Collection::decode(&bytes[..len]).is_err());
        }
    }
}
