//! Validation of pages from storage. It makes every accessor safe, whatever the bytes are
//! (invariant I5).

use super::{Child, HEADER_BYTES, LeafCell, Limits, Node, Slot, ValuePlace, cell, common_prefix, head_of};
use crate::error::{Error, Result};

/// Even with two children per node, a tree this high would hold more records than can be counted.
const MAX_LEVEL: u8 = 63;
const TOO_LONG: &str = "a key or record is longer than the node size allows";

/// Whether a record with a key of this length may stand in a leaf.
fn fits(limits: &Limits, key_len: usize, cell: &LeafCell<'_>) -> bool {
    let keys_len = cell.index_keys.len();
    let keys_fit = keys_len == 0 || limits.fits_index_keys(key_len, keys_len, cell.stored_len());
    keys_fit && (matches!(cell.place, ValuePlace::OutOfLine(_)) || limits.is_inline(key_len, cell.value_len))
}

impl Node {
    /// Accepts exactly the consistent pages within the limits. All offsets, lengths, fences, heads
    /// and payloads must be consistent and the keys ascending, and every key and record must be
    /// within the limits, so that the page can be split (I7).
    pub(crate) fn validate(&self, limits: &Limits) -> Result<()> {
        self.check(limits).map_err(Error::corrupt)
    }

    fn check(&self, limits: &Limits) -> std::result::Result<(), &'static str> {
        let size = self.bytes.len();
        if size < HEADER_BYTES || size > usize::from(u16::MAX) {
            return Err("a node has an impossible size");
        }
        if self.slots_end() + self.heap_bytes() > size || self.garbage() > self.heap_bytes() {
            return Err("a node's slots and heap overlap");
        }
        let inside = |offset: usize, len: usize| offset <= self.heap_bytes() && len <= offset;
        if !inside(self.get_u16(16), self.get_u16(10)) || !inside(self.get_u16(18), self.get_u16(12)) {
            return Err("a node's fence lies outside its heap");
        }
        let expected_prefix = self
            .upper_fence()
            .map_or(0, |upper| common_prefix(self.lower_fence(), upper));
        if self.prefix_len() != expected_prefix {
            return Err("a node's prefix is not that of its fences");
        }
        if self.upper_fence().is_some_and(|upper| upper <= self.lower_fence()) {
            return Err("a node's fences are not in order");
        }
        if self.level() > MAX_LEVEL {
            return Err("a node is higher than a tree can grow");
        }
        if !self.is_leaf() && self.len() == 0 {
            return Err("an inner node has no children");
        }
        self.check_cells(limits)
    }

    fn check_cells(&self, limits: &Limits) -> std::result::Result<(), &'static str> {
        let (lower, upper) = (self.lower_fence().len(), self.upper_fence().map_or(0, <[u8]>::len));
        if lower.max(upper) > limits.max_key_bytes {
            return Err(TOO_LONG);
        }
        let cells = if self.is_leaf() {
            self.check_records(limits)?
        } else {
            self.check_children(limits)?
        };
        if lower + upper + cells + self.garbage() != self.heap_bytes() {
            return Err("a node's heap does not add up");
        }
        self.check_fences()
    }

    /// The suffix of a cell, and the bytes after it.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "each record of a leaf that is read runs through it, and WebAssembly inlines less"
    )]
    fn check_slot(&self, slot: Slot, heap_bytes: usize) -> std::result::Result<(&[u8], &[u8]), &'static str> {
        if slot.offset > heap_bytes || slot.suffix_len > slot.offset {
            return Err("a cell lies outside its node's heap");
        }
        let (stored, payload) = self.bytes[self.bytes.len() - slot.offset..].split_at(slot.suffix_len);
        if head_of(stored) != slot.head {
            return Err("a slot does not match its key");
        }
        Ok((stored, payload))
    }

    /// Checks the cells of a leaf; returns the bytes they take. Every leaf read from disk passes
    /// through here, and in WebAssembly this takes a third of the time of reading it, so heads,
    /// which lie side by side, are compared before keys.
    fn check_records(&self, limits: &Limits) -> std::result::Result<usize, &'static str> {
        let heap_bytes = self.heap_bytes();
        let has_overflow = self.has_overflow();
        let prefix_len = self.prefix_len();
        let mut live = 0;
        let mut previous: Option<(u32, &[u8])> = None;
        for slot in self.slots() {
            let slot = Slot::decode(*slot);
            let (stored, payload) = self.check_slot(slot, heap_bytes)?;
            let (len, out_of_line) = cell::check_leaf_payload(payload).ok_or("a record is malformed")?;
            if out_of_line && !has_overflow {
                return Err("a leaf does not announce its out-of-line value");
            }
            live += slot.suffix_len + len;
            let key_len = prefix_len + slot.suffix_len;
            // The payload is longer than the value, so usually it need not be decoded.
            if key_len > limits.max_key_bytes
                || (key_len + len > limits.max_inline_bytes && !fits(limits, key_len, &LeafCell::decode(payload)))
            {
                return Err(TOO_LONG);
            }
            if let Some((head, before)) = previous
                && (head > slot.head || (head == slot.head && before >= stored))
            {
                return Err("a node's keys are not in order");
            }
            previous = Some((slot.head, stored));
        }
        Ok(live)
    }

    /// Checks the cells of an inner node; returns the bytes they take.
    fn check_children(&self, limits: &Limits) -> std::result::Result<usize, &'static str> {
        let heap_bytes = self.heap_bytes();
        let mut live = 0;
        let mut records = 0;
        let mut previous: Option<&[u8]> = None;
        for (index, slot) in self.slots().iter().enumerate() {
            let slot = Slot::decode(*slot);
            let (stored, payload) = self.check_slot(slot, heap_bytes)?;
            let is_first = index == 0;
            if is_first && !stored.is_empty() {
                return Err("a slot does not match its key");
            }
            if self.prefix_len() + slot.suffix_len > limits.max_key_bytes {
                return Err(TOO_LONG);
            }
            live += slot.suffix_len + self.check_child(payload)?;
            records += self.child_count(index);
            if records > cell::COUNT_MASK {
                return Err("an inner node counts more records than a tree can hold");
            }
            if previous.is_some_and(|previous| previous >= stored) {
                return Err("a node's keys are not in order");
            }
            // The first child's key is the lower fence.
            previous = Some(if is_first { self.suffix(0) } else { stored });
        }
        Ok(live)
    }

    fn check_child(&self, payload: &[u8]) -> std::result::Result<usize, &'static str> {
        let bytes = payload.get(..Child::BYTES).ok_or("a child reference is cut off")?;
        match Child::decode(bytes) {
            Some(child) => {
                if child.has_overflow && !self.has_overflow() {
                    return Err("an inner node does not announce its out-of-line values");
                }
                Ok(Child::BYTES)
            }
            None => Err("a child reference is malformed"),
        }
    }

    /// Checks that the first and last key lie within the fences. The keys' order implies the rest.
    fn check_fences(&self) -> std::result::Result<(), &'static str> {
        if self.len() == 0 {
            return Ok(());
        }
        if self.is_leaf() && self.key(0).as_slice() < self.lower_fence() {
            return Err("a key lies below its node's lower fence");
        }
        let last = self.key(self.len() - 1);
        if self.upper_fence().is_some_and(|upper| last.as_slice() >= upper) {
            return Err("a key lies at or above its node's upper fence");
        }
        Ok(())
    }
}
