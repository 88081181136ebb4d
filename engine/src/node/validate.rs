//! Checks of a page that came from storage. After them every accessor is in bounds, whatever the bytes were (invariant I5).

use super::{Child, HEADER_BYTES, Node, cell, common_prefix, head_of};
use crate::block::Pointer;
use crate::error::{Error, Result};

/// With two children to a node, a tree this high would hold more records than can be counted.
const MAX_LEVEL: u8 = 63;

impl Node {
    /// Accepts a page exactly if all its offsets, lengths, fences, heads and payloads are consistent and its keys ascend.
    pub(crate) fn validate(&self) -> Result<()> {
        self.check().map_err(Error::corrupt)
    }

    fn check(&self) -> std::result::Result<(), &'static str> {
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
        self.check_cells(&inside)
    }

    fn check_cells(&self, inside: &dyn Fn(usize, usize) -> bool) -> std::result::Result<(), &'static str> {
        let mut records = 0;
        let mut previous: Option<&[u8]> = None;
        let mut live = self.lower_fence().len() + self.upper_fence().map_or(0, <[u8]>::len);
        for index in 0..self.len() {
            let slot = self.slot(index);
            if !inside(slot.offset, slot.suffix_len) {
                return Err("a cell lies outside its node's heap");
            }
            let is_first_child = index == 0 && !self.is_leaf();
            let stored = self.at_end(slot.offset, slot.suffix_len);
            if head_of(stored) != slot.head || (is_first_child && !stored.is_empty()) {
                return Err("a slot does not match its key");
            }
            let payload = self.at_end(slot.offset - slot.suffix_len, slot.offset - slot.suffix_len);
            let payload_len = self.check_payload(payload)?;
            live += slot.suffix_len + payload_len;
            if !self.is_leaf() {
                records += self.child_count(index);
                if records > cell::COUNT_MASK {
                    return Err("an inner node counts more records than a tree can hold");
                }
            }
            if previous.is_some_and(|previous| previous >= stored) {
                return Err("a node's keys are not in order");
            }
            // The first child's key is the lower fence.
            previous = Some(if is_first_child { self.suffix(0) } else { stored });
        }
        if live + self.garbage() != self.heap_bytes() {
            return Err("a node's heap does not add up");
        }
        self.check_fences()
    }

    fn check_payload(&self, payload: &[u8]) -> std::result::Result<usize, &'static str> {
        if self.is_leaf() {
            let (len, out_of_line) = cell::check_leaf_payload(payload).ok_or("a record is malformed")?;
            if out_of_line && !self.has_overflow() {
                return Err("a leaf does not announce its out-of-line value");
            }
            return Ok(len);
        }
        let bytes = payload.get(..Child::BYTES).ok_or("a child reference is cut off")?;
        match Child::decode(bytes) {
            Some(child) if matches!(child.pointer, Pointer::Disk(_)) => {
                if child.has_overflow && !self.has_overflow() {
                    return Err("an inner node does not announce its out-of-line values");
                }
                Ok(Child::BYTES)
            }
            _ => Err("a child reference is malformed"),
        }
    }

    /// First and last key lie between the fences; the rest follows from the order.
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
