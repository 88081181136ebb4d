//! The sorted keys of a node, and the search among them.

use std::cmp::Ordering;

use crate::index::key::{Key, common_prefix};

/// Capacity of a node in keys. Nodes in a tree have fewer, because a full node splits.
pub(super) const SLOTS: usize = 64;

/// Shorter common prefixes are not worth a comparison with the first key.
const MIN_SKIP: usize = 4;

/// Sorted keys. A search compares their heads, which are contiguous in memory, and then usually one
/// whole key. A head is the eight bytes of a key that follow the prefix common to all keys.
#[derive(Clone)]
pub(super) struct Keys {
    heads: [u64; SLOTS],
    /// Length of a prefix common to all keys.
    skip: usize,
    full: Vec<Key>,
}

impl From<Vec<Key>> for Keys {
    fn from(keys: Vec<Key>) -> Self {
        let mut keys = Self {
            heads: [0; SLOTS],
            skip: 0,
            full: keys,
        };
        keys.skip = keys.common_skip();
        keys.fill_heads();
        keys
    }
}

impl Keys {
    pub(super) fn as_slice(&self) -> &[Key] {
        &self.full
    }

    pub(super) fn len(&self) -> usize {
        self.full.len()
    }

    /// Returns the index of the key, or where it belongs.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        if self.skip > 0 {
            let prefix = &self.full[0][..self.skip];
            match key[..key.len().min(self.skip)].cmp(prefix) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.len()),
                Ordering::Equal => (),
            }
        }
        let head = head(key, self.skip);
        let heads = &self.heads[..self.len()];
        let start = heads.partition_point(|other| *other < head);
        let equal = match heads.get(start + 1) {
            Some(next) if *next == head => heads[start..].partition_point(|other| *other == head),
            _ => usize::from(heads.get(start) == Some(&head)),
        };
        let found = self.full[start..start + equal].binary_search_by(|other| (**other).cmp(key));
        found.map(|index| start + index).map_err(|index| start + index)
    }

    pub(super) fn insert(&mut self, index: usize, key: Key) {
        let len = self.len();
        let fits = len == 0 || key.len() >= self.skip && key[..self.skip] == self.full[0][..self.skip];
        let head = head(&key, self.skip);
        self.full.insert(index, key);
        if fits {
            self.heads.copy_within(index..len, index + 1);
            self.heads[index] = head;
        }
        // The common prefix may have grown, which is checked only occasionally.
        if !fits || len.is_power_of_two() {
            self.update_skip();
        }
    }

    pub(super) fn remove(&mut self, index: usize) -> Key {
        self.heads.copy_within(index + 1..self.full.len(), index);
        let key = self.full.remove(index);
        if self.full.is_empty() {
            self.skip = 0;
        }
        key
    }

    /// Keeps the keys before `at` and returns the rest.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut right = self.clone_heads(at);
        right.full = self.full.split_off(at);
        right.update_skip();
        self.update_skip();
        right
    }

    /// Adds greater keys, for which there must be room.
    pub(super) fn append(&mut self, right: Self) {
        let len = self.len();
        self.full.extend(right.full);
        if self.skip == right.skip && self.common_skip() == self.skip {
            let count = self.full.len() - len;
            self.heads[len..][..count].copy_from_slice(&right.heads[..count]);
        } else {
            self.skip = self.common_skip();
            self.fill_heads();
        }
    }

    /// Copies the heads from `at` on, without the keys.
    fn clone_heads(&self, at: usize) -> Self {
        let mut heads = self.heads;
        heads.copy_within(at.., 0);
        Self {
            heads,
            skip: self.skip,
            full: Vec::new(),
        }
    }

    /// Length of the common prefix, 0 if it is not worth skipping.
    fn common_skip(&self) -> usize {
        let len = match &self.full[..] {
            [first, .., last] => common_prefix(first, last),
            _ => 0,
        };
        if len < MIN_SKIP { 0 } else { len }
    }

    /// Keeps the heads if possible, because computing them visits every key.
    fn update_skip(&mut self) {
        let skip = self.common_skip();
        if skip != self.skip {
            self.skip = skip;
            self.fill_heads();
        }
    }

    fn fill_heads(&mut self) {
        for (slot, key) in self.heads.iter_mut().zip(&self.full) {
            *slot = head(key, self.skip);
        }
    }
}

/// Returns the eight bytes after the first `skip`, padded with zeros: a key with a smaller head is
/// smaller.
fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => rest.iter().rfold(0, |head, byte| head >> 8 | u64::from(*byte) << 56),
    }
}
