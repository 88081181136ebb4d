//! The sorted keys of a node, and how to find one among them.

use std::cmp::Ordering;

use crate::index::key::{Key, common_prefix};

/// How many keys a node can have. Those of the tree have fewer: a node splits when it is full.
pub(super) const SLOTS: usize = 64;

/// Shorter common prefixes are not worth a look at the first key.
const MIN_SKIP: usize = 4;

/// Sorted keys. A search compares heads, eight bytes of each key after a prefix common to all, side by side in memory; then, as a rule, one
/// whole key.
#[derive(Clone)]
pub(super) struct Keys {
    heads: [u64; SLOTS],
    /// Length of a prefix that all keys have.
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
        keys.rebuild();
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

    /// Index of the key, or where it belongs.
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
        // Now and then the prefix is looked for anew.
        if !fits || len.is_power_of_two() {
            self.rebuild();
        } else {
            self.heads.copy_within(index..len, index + 1);
            self.heads[index] = head;
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

    /// Leaves none.
    pub(super) fn take(&mut self) -> Vec<Key> {
        self.skip = 0;
        std::mem::take(&mut self.full)
    }

    pub(super) fn into_vec(self) -> Vec<Key> {
        self.full
    }

    /// Keeps the keys before `at` and returns the others.
    pub(super) fn split_off(&mut self, at: usize) -> Vec<Key> {
        let right = self.full.split_off(at);
        self.rebuild();
        right
    }

    fn rebuild(&mut self) {
        self.skip = match &self.full[..] {
            [first, .., last] => Some(common_prefix(first, last)).filter(|len| *len >= MIN_SKIP),
            _ => None,
        }
        .unwrap_or(0);
        for (slot, key) in self.heads.iter_mut().zip(&self.full) {
            *slot = head(key, self.skip);
        }
    }
}

/// Eight bytes after the first `skip`, padded with zeros: a key with a smaller head is smaller.
fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => rest.iter().rfold(0, |head, byte| head >> 8 | u64::from(*byte) << 56),
    }
}
