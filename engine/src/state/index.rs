//! Secondary indexes: how the catalog describes them, and the keys under which they are stored.
//!
//! An index is a hidden collection with one record for each index key of each record: its key is
//! made of the index key and the record's key, its value is empty. Each record keeps its index keys,
//! so that it can be replaced or removed without the function that computed them: in its leaf cell,
//! or *apart*, in another hidden collection beside the indexed one. Apart are those that are too
//! long for the leaf, and those of an index that was built after the record was written. What
//! belongs to a record expires with it.
//!
//! ```text
//! key in an index
//!     index key with FF after each byte 00; 00 01; key of the record
//! index keys of a record, in its leaf cell, and under its key in the collection of those stored apart
//!     per index that has any, by ascending id: varint id, varint count; per index key: varint length, index key
//! indexes of a collection
//!     per index, by ascending id: varint id; varint length, name; varint version; u8 flags (1 unique, 2 complete,
//!     4 position follows); if so, varint length, key of the last record that is indexed
//! ```

use std::ops::Bound;
use std::sync::Arc;

use crate::node::cell::{get_varint, put_bytes, put_varint};
use crate::range::KeyRange;

/// The declaration of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexDefinition {
    /// Its name, unique within the collection.
    pub name: String,
    /// Version of the function that computes the index keys. A newer one rebuilds the index.
    pub version: u32,
    /// Whether no two records may have the same index key.
    pub unique: bool,
}

/// How much of a collection an index covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexProgress {
    /// Every record.
    Complete,
    /// Records up to and including this key, and every record written since the index was declared.
    Building(Option<Vec<u8>>),
}

/// An index of a collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// Its id, different for each version of an index and never used again.
    pub id: u32,
    /// Its definition.
    pub definition: IndexDefinition,
    /// How much of the collection it covers.
    pub progress: IndexProgress,
}

impl Index {
    /// Whether it covers every record, so that it can be read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.progress == IndexProgress::Complete
    }
}

const UNIQUE: u8 = 1;
const COMPLETE: u8 = 2;
const POSITION: u8 = 4;

/// Maximum length of an index's name in bytes.
pub(crate) const MAX_INDEX_NAME_BYTES: usize = 255;

/// Name of the hidden collection of an index.
pub(crate) fn index_of(id: u32) -> String {
    numbered("\0index", id)
}

/// Name of the hidden collection with the index keys that records of collection `id` keep apart.
pub(crate) fn index_keys_of(id: u32) -> String {
    numbered("\0keys", id)
}

/// A name with a decimal number behind it, in one allocation: there is one for each entry that is
/// written.
fn numbered(name: &str, id: u32) -> String {
    let mut numbered = String::with_capacity(name.len() + 10);
    numbered.push_str(name);
    let mut divisor = 1_000_000_000;
    while divisor > 1 && id < divisor {
        divisor /= 10;
    }
    while divisor > 0 {
        numbered.push(char::from(b'0' + (id / divisor % 10) as u8));
        divisor /= 10;
    }
    numbered
}

/// Splits numbers, and bytes with their length before them, off the front.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, taken) = get_varint(self.0)?;
        self.0 = &self.0[taken..];
        Some(number)
    }

    fn word(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }
}

pub(crate) fn encode_indexes(indexes: &[Index]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Index {
        id,
        definition,
        progress,
    } in indexes
    {
        let (state, position) = match progress {
            IndexProgress::Complete => (COMPLETE, None),
            IndexProgress::Building(None) => (0, None),
            IndexProgress::Building(Some(key)) => (POSITION, Some(key)),
        };
        put_varint(&mut bytes, u64::from(*id));
        put_bytes(&mut bytes, definition.name.as_bytes());
        put_varint(&mut bytes, u64::from(definition.version));
        bytes.push(state | if definition.unique { UNIQUE } else { 0 });
        if let Some(key) = position {
            put_bytes(&mut bytes, key);
        }
    }
    bytes
}

/// `None` if the bytes are malformed.
pub(crate) fn decode_indexes(bytes: &[u8]) -> Option<Arc<[Index]>> {
    let mut parts = Parts(bytes);
    let mut indexes: Vec<Index> = Vec::new();
    while !parts.0.is_empty() {
        let id = parts.word()?;
        let name = String::from_utf8(parts.bytes()?.to_vec()).ok()?;
        let version = parts.word()?;
        let flags = parts.take(1)?[0];
        let progress = match flags & !UNIQUE {
            COMPLETE => IndexProgress::Complete,
            0 => IndexProgress::Building(None),
            POSITION => IndexProgress::Building(Some(parts.bytes()?.to_vec())),
            _ => return None,
        };
        if indexes.last().is_some_and(|last| last.id >= id) {
            return None;
        }
        let unique = flags & UNIQUE != 0;
        indexes.push(Index {
            id,
            definition: IndexDefinition { name, version, unique },
            progress,
        });
    }
    Some(indexes.into())
}

/// The index keys of one record.
///
/// A write to an indexed collection states them for every index of it, those that are being built
/// included; an index that does not contain the record gets no key.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct IndexKeys {
    /// Ascending by id.
    lists: Vec<(u32, Vec<Vec<u8>>)>,
}

impl IndexKeys {
    /// States the keys for no index yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// States the keys for the index `id`, instead of any stated before. Repeated keys count once.
    pub fn set(&mut self, id: u32, keys: impl IntoIterator<Item = Vec<u8>>) {
        let mut list: Vec<Vec<u8>> = Vec::new();
        for key in keys {
            if !list.contains(&key) {
                list.push(key);
            }
        }
        match self.position(id) {
            Ok(at) => self.lists[at].1 = list,
            Err(at) => self.lists.insert(at, (id, list)),
        }
    }

    fn position(&self, id: u32) -> Result<usize, usize> {
        self.lists.binary_search_by_key(&id, |(id, _)| *id)
    }

    pub(crate) fn get(&self, id: u32) -> &[Vec<u8>] {
        self.position(id).map_or(&[], |at| &self.lists[at].1)
    }

    /// Adds the lists of other keys; they replace own lists for the same index.
    pub(crate) fn merge(&mut self, other: Self) {
        for (id, keys) in other.lists {
            self.set(id, keys);
        }
    }

    pub(crate) fn states(&self, id: u32) -> bool {
        self.position(id).is_ok()
    }

    /// Leaves out indexes that are not asked for.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.lists.retain(|(id, _)| is_kept(*id));
    }

    pub(crate) fn lists(&self) -> impl Iterator<Item = (u32, &[Vec<u8>])> {
        self.lists.iter().map(|(id, keys)| (*id, keys.as_slice()))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, keys) in &self.lists {
            if keys.is_empty() {
                continue;
            }
            put_varint(&mut bytes, u64::from(*id));
            put_varint(&mut bytes, keys.len() as u64);
            for key in keys {
                put_bytes(&mut bytes, key);
            }
        }
        bytes
    }

    /// `None` if the bytes are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parts = Parts(bytes);
        let mut keys = Self::default();
        while !parts.0.is_empty() {
            let id = parts.word()?;
            if keys.lists.last().is_some_and(|(last, _)| *last >= id) {
                return None;
            }
            let mut list = Vec::new();
            for _ in 0..parts.number()? {
                list.push(parts.bytes()?.to_vec());
            }
            keys.lists.push((id, list));
        }
        Some(keys)
    }
}

const AFTER_ZERO: u8 = 0xFF;
/// Ends an index key. It sorts before any byte that follows a byte 00 inside one.
const END: [u8; 2] = [0, 1];
/// Sorts after all records with an index key.
const PAST: [u8; 2] = [0, 2];

fn put_index_key(into: &mut Vec<u8>, key: &[u8]) {
    for byte in key {
        into.push(*byte);
        if *byte == 0 {
            into.push(AFTER_ZERO);
        }
    }
}

/// Length of an index key with its zeros doubled.
fn doubled_len(key: &[u8]) -> usize {
    key.len() + key.iter().map(|byte| usize::from(*byte == 0)).sum::<usize>()
}

fn joined(key: &[u8], end: [u8; 2], record_key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(doubled_len(key) + end.len() + record_key.len());
    put_index_key(&mut bytes, key);
    bytes.extend_from_slice(&end);
    bytes.extend_from_slice(record_key);
    bytes
}

/// The key of a record in an index.
pub(crate) fn entry_key(index_key: &[u8], key: &[u8]) -> Vec<u8> {
    joined(index_key, END, key)
}

/// Length of [`entry_key`].
pub(crate) fn entry_key_len(index_key: &[u8], key: &[u8]) -> usize {
    doubled_len(index_key) + END.len() + key.len()
}

/// Splits a key in an index into the index key and the key of the record; `None` if it is
/// malformed.
pub(crate) fn split_entry_key(entry: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut index_key = Vec::new();
    let mut rest = entry;
    loop {
        match rest {
            [0, AFTER_ZERO, after @ ..] => {
                index_key.push(0);
                rest = after;
            }
            [0, 1, key @ ..] => return Some((index_key, key)),
            [0, ..] | [] => return None,
            [byte, after @ ..] => {
                index_key.push(*byte);
                rest = after;
            }
        }
    }
}

/// Bounds in an index of the records whose index keys are in a range.
pub(crate) struct EntryRange {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl EntryRange {
    pub(crate) fn new(range: &KeyRange<'_>) -> Self {
        Self {
            lower: match range.lower {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(key) => Bound::Included(joined(key, END, &[])),
                Bound::Excluded(key) => Bound::Included(joined(key, PAST, &[])),
            },
            upper: match range.upper {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(key) => Bound::Excluded(joined(key, PAST, &[])),
                Bound::Excluded(key) => Bound::Excluded(joined(key, END, &[])),
            },
        }
    }

    /// Bounds of the records with one index key.
    pub(crate) fn only(key: &[u8]) -> Self {
        Self::new(&KeyRange {
            lower: Bound::Included(key),
            upper: Bound::Included(key),
        })
    }

    pub(crate) fn borrow(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_ref().map(Vec::as_slice),
            upper: self.upper.as_ref().map(Vec::as_slice),
        }
    }
}

/// The first place in an index at or past an index key, in ascending or descending order.
pub(crate) fn seek_key(index_key: &[u8], is_reverse: bool) -> Vec<u8> {
    joined(index_key, if is_reverse { PAST } else { END }, &[])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Vec<Index> {
        let index = |id, name: &str, version, unique, progress| Index {
            id,
            definition: IndexDefinition {
                name: name.to_owned(),
                version,
                unique,
            },
            progress,
        };
        vec![
            index(3, "by author", 1, false, IndexProgress::Complete),
            index(300, "ü", 2, true, IndexProgress::Building(None)),
            index(301, "", 0, true, IndexProgress::Building(Some(vec![1, 2]))),
        ]
    }

    #[test]
    fn hidden_collections_have_decimal_numbers() {
        for id in [0, 1, 9, 10, 99, 100, 1_000_000_007, u32::MAX] {
            assert_eq!(index_of(id), format!("\0index{id}"));
            assert_eq!(index_keys_of(id), format!("\0keys{id}"));
        }
    }

    #[test]
    fn descriptions_round_trip_with_golden_bytes() {
        let bytes = encode_indexes(&sample());
        assert_eq!(
            bytes,
            b"\x03\x09by author\x01\x02\xac\x02\x02\xc3\xbc\x02\x01\xad\x02\x00\x00\x05\x02\x01\x02"
        );
        assert_eq!(*decode_indexes(&bytes).unwrap(), *sample());
        let ends = [0, 13, 20];
        for len in 0..bytes.len() {
            assert_eq!(decode_indexes(&bytes[..len]).is_some(), ends.contains(&len), "{len}");
        }
    }

    #[test]
    fn keys_of_a_record_round_trip_with_golden_bytes() {
        let mut keys = IndexKeys::new();
        keys.set(9, [b"b".to_vec(), b"".to_vec(), b"b".to_vec()]);
        keys.set(2, [b"x".to_vec()]);
        keys.set(5, []);
        let bytes = keys.encode();
        assert_eq!(bytes, b"\x02\x01\x01x\x09\x02\x01b\x00");
        assert_eq!(IndexKeys::decode(&bytes).unwrap().encode(), bytes);
        assert!(keys.states(5) && !keys.states(6));
    }

    proptest! {
        #[test]
        fn entries_sort_by_index_key_then_by_key(
            a in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()], 0..6),
            b in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()], 0..6),
            first in prop::collection::vec(any::<u8>(), 0..4),
            second in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let (one, other) = (entry_key(&a, &first), entry_key(&b, &second));
            prop_assert_eq!(one.cmp(&other), (&a, &first).cmp(&(&b, &second)));
            prop_assert_eq!(split_entry_key(&one), Some((a.clone(), first.as_slice())));
            prop_assert_eq!(one.len(), entry_key_len(&a, &first));
            let only = EntryRange::only(&a);
            let (Bound::Included(lower), Bound::Excluded(upper)) = (&only.lower, &only.upper) else { panic!() };
            prop_assert!(*lower <= one && one < *upper);
            prop_assert_eq!(*lower <= other && other < *upper, a == b);
            let up = seek_key(&a, false);
            prop_assert_eq!(other >= up, b >= a);
            let down = seek_key(&a, true);
            prop_assert_eq!(other <= down, b <= a);
        }

        #[test]
        fn hostile_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (IndexKeys::decode(&bytes), decode_indexes(&bytes), split_entry_key(&bytes));
        }
    }
}
