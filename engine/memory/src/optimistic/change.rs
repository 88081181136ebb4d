//! The changes of a transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::index::OrderedIndex;
use mangrove_engine::KeyRange;
use mangrove_engine::Result;

use super::{Footprint, OwnedRange, borrowed, owned};
use crate::draft::Draft;
use crate::state::{Record, State};

/// A change that the commit replays on the newest version.
pub(super) enum Change {
    Put {
        collection: Arc<str>,
        key: Vec<u8>,
        value: Arc<[u8]>,
        expires: u64,
    },
    Delete(Arc<str>, Vec<u8>),
    Clear(Arc<str>, OwnedRange),
    Codecs(Arc<str>, String, String),
    Drop(Arc<str>),
    Rename(Arc<str>, Arc<str>),
}

impl Change {
    pub(super) fn apply<I: OrderedIndex<Record>>(&self, draft: &mut Draft<I>) -> Result<()> {
        match self {
            Self::Put {
                collection,
                key,
                value,
                expires,
            } => draft.put(collection, key, Arc::clone(value), *expires).map(|_| ()),
            Self::Delete(collection, key) => {
                draft.delete(collection, key);
                Ok(())
            }
            Self::Clear(collection, range) => {
                draft.clear(collection, &borrowed(range));
                Ok(())
            }
            Self::Codecs(collection, key_codec, value_codec) => draft.set_codecs(collection, key_codec, value_codec),
            Self::Drop(name) => {
                draft.drop_collection(name);
                Ok(())
            }
            Self::Rename(from, to) => draft.rename_collection(from, to).map(|_| ()),
        }
    }
}

/// Returns what the changes write to collections that exist in the transaction's snapshot.
pub(super) fn written<I>(changes: &[Change], base: &State<I>) -> BTreeMap<Arc<str>, Footprint> {
    let mut footprints = BTreeMap::<Arc<str>, Footprint>::new();
    let mut names = BTreeMap::<Arc<str>, Arc<str>>::new();
    for change in changes {
        let (name, key, range) = match change {
            Change::Put { collection, key, .. } | Change::Delete(collection, key) => (collection, Some(key), None),
            Change::Clear(collection, range) => (collection, None, Some(range.clone())),
            Change::Drop(collection) => (collection, None, Some(owned(&KeyRange::all()))),
            Change::Rename(from, to) => {
                let origin = names.remove(from).unwrap_or_else(|| Arc::clone(from));
                names.insert(Arc::clone(to), origin);
                continue;
            }
            Change::Codecs(..) => continue,
        };
        let origin = names.get(name).unwrap_or(name);
        if !base.collections.contains_key(origin) {
            continue;
        }
        let footprint = footprints.entry(Arc::clone(origin)).or_default();
        footprint.keys.extend(key.cloned());
        footprint.ranges.extend(range);
    }
    footprints
}
