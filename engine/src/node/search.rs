//! Binary search of the slot array by key heads.

use std::cmp::Ordering;

use super::{HEAD_BYTES, HEADER_BYTES, Node, SLOT_BYTES, Slot, head_of};

impl Node {
    /// Position of the first cell whose key is not less than `key`, and whether it equals `key`. In
    /// an inner node, cell 0 counts as less than or equal to everything the node covers.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> (usize, bool) {
        // Keys are only looked up in nodes whose fences cover them (I6), so they share the prefix.
        debug_assert!(
            key.starts_with(self.prefix()),
            "the node's fences cover the keys that are looked up in it"
        );
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        let head = head_of(suffix);
        let slots = &self.bytes[HEADER_BYTES..HEADER_BYTES + self.len() * SLOT_BYTES];
        let slots = slots.as_chunks::<SLOT_BYTES>().0;
        // In an inner node, cell 0 has no key.
        let first = usize::from(!self.is_leaf()).min(slots.len());
        let slots = &slots[first..];
        let below = slots.partition_point(|slot| Slot::decode(*slot).head < head);
        let at_least = &slots[below..];
        let is_same = |slot: &[u8; SLOT_BYTES]| Slot::decode(*slot).head == head;
        let same = match at_least {
            [slot, ..] if !is_same(slot) => 0,
            // Usually heads differ.
            [_, next, ..] if is_same(next) => at_least.partition_point(is_same),
            _ => at_least.len().min(1),
        };
        let word = word_of(suffix);
        let found = at_least[..same].binary_search_by(|slot| {
            let slot = Slot::decode(*slot);
            compare(self.at_end(slot.offset, slot.suffix_len), suffix, word)
        });
        match found {
            Ok(index) => (first + below + index, true),
            Err(index) => (first + below + index, false),
        }
    }

    /// As [`lower_bound`](Self::lower_bound), in a leaf whose fences need not cover the key.
    pub(crate) fn lower_bound_outside(&self, key: &[u8]) -> (usize, bool) {
        let start = &key[..key.len().min(self.prefix_len())];
        match start.cmp(self.prefix()) {
            Ordering::Less => (0, false),
            Ordering::Equal => self.lower_bound(key),
            Ordering::Greater => (self.len(), false),
        }
    }

    /// Index of the child of an inner node that covers `key`.
    pub(crate) fn child_index(&self, key: &[u8]) -> usize {
        match self.lower_bound(key) {
            (index, true) => index,
            (index, false) => index.saturating_sub(1),
        }
    }
}

const WORD_BYTES: usize = 8;

/// Compares a stored suffix with one whose word is known.
#[inline]
fn compare(stored: &[u8], suffix: &[u8], word: u64) -> Ordering {
    word_of(stored).cmp(&word).then_with(|| {
        if stored.len().max(suffix.len()) <= WORD_BYTES {
            // They differ in trailing zeros, if at all.
            stored.len().cmp(&suffix.len())
        } else {
            stored.cmp(suffix)
        }
    })
}

/// As [`head_of`], with eight bytes.
#[inline]
fn word_of(suffix: &[u8]) -> u64 {
    if let Some(first) = suffix.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let head = u64::from(head_of(suffix)) << 32;
    match suffix.last_chunk::<HEAD_BYTES>() {
        // The last four bytes, without those already in the head.
        Some(last) => head | (u64::from(u32::from_be_bytes(*last)) << (8 * (WORD_BYTES - suffix.len())) & 0xFFFF_FFFF),
        None => head,
    }
}
