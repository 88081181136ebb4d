//! Changes within one page.

use super::{Child, HEADER_BYTES, Node, SLOT_BYTES, Slot, head_of};

impl Node {
    /// Inserts a cell before position `index`; `false` if it does not fit. `key` must lie within
    /// the fences.
    pub(crate) fn insert(&mut self, index: usize, key: &[u8], payload: &[u8]) -> bool {
        let is_first_child = index == 0 && !self.is_leaf();
        let suffix = if is_first_child { &[] } else { &key[self.prefix_len()..] };
        let needed = SLOT_BYTES + suffix.len() + payload.len();
        if self.gap() < needed {
            if self.gap() + self.garbage() < needed {
                return false;
            }
            self.compact();
        }
        self.push_heap(payload);
        let offset = self.push_heap(suffix);
        let slot = Slot {
            offset,
            suffix_len: suffix.len(),
            head: head_of(suffix),
        };
        let at = HEADER_BYTES + index * SLOT_BYTES;
        let end = self.slots_end();
        self.bytes.copy_within(at..end, at + SLOT_BYTES);
        self.bytes[at..at + SLOT_BYTES].copy_from_slice(&slot.encode());
        self.put_u16(2, self.len() + 1);
        true
    }

    /// Replaces the payload of cell `index`; `false`, with nothing changed, if it does not fit.
    pub(crate) fn replace_payload(&mut self, index: usize, payload: &[u8]) -> bool {
        let slot = self.slot(index);
        let old_len = self.payload(index).len();
        let start = self.bytes.len() - slot.offset + slot.suffix_len;
        if payload.len() <= old_len {
            self.bytes[start..start + payload.len()].copy_from_slice(payload);
            self.put_u16(6, self.garbage() + old_len - payload.len());
            return true;
        }
        let needed = slot.suffix_len + payload.len();
        let freed = slot.suffix_len + old_len;
        if self.gap() < needed && self.gap() + self.garbage() + freed < needed {
            return false;
        }
        let suffix = self.suffix(index).to_vec();
        self.put_u16(6, self.garbage() + freed);
        if self.gap() < needed {
            // The compaction must not copy the old cell, so its slot is removed first.
            let at = HEADER_BYTES + index * SLOT_BYTES;
            self.remove_slot(at);
            self.compact();
            let end = self.slots_end();
            self.bytes.copy_within(at..end, at + SLOT_BYTES);
            self.put_u16(2, self.len() + 1);
        }
        self.push_heap(payload);
        let offset = self.push_heap(&suffix);
        let at = HEADER_BYTES + index * SLOT_BYTES;
        let moved = Slot { offset, ..slot };
        self.bytes[at..at + SLOT_BYTES].copy_from_slice(&moved.encode());
        true
    }

    /// Replaces the reference to child `index`; its key stays. No reader may descend through the
    /// node yet.
    pub(crate) fn set_child(&mut self, index: usize, child: Child) {
        let slot = self.slot(index);
        let start = self.bytes.len() - slot.offset + slot.suffix_len;
        self.bytes[start..start + Child::BYTES].copy_from_slice(&child.encode());
        if child.has_overflow {
            self.mark_overflow();
        }
    }

    fn remove_slot(&mut self, at: usize) {
        let end = self.slots_end();
        self.bytes.copy_within(at + SLOT_BYTES..end, at);
        self.put_u16(2, self.len() - 1);
    }

    /// Appends to the heap; returns the offset from the end of the page.
    pub(super) fn push_heap(&mut self, bytes: &[u8]) -> usize {
        let heap = self.heap_bytes() + bytes.len();
        let start = self.bytes.len() - heap;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.put_u16(4, heap);
        heap
    }

    /// Compacts the live cells, so that the dead bytes join the gap.
    fn compact(&mut self) {
        let old = self.clone();
        self.put_u16(4, 0);
        self.put_u16(6, 0);
        let lower_at = self.push_heap(old.lower_fence());
        let upper_at = self.push_heap(old.upper_fence().unwrap_or_default());
        self.put_u16(16, lower_at);
        self.put_u16(18, upper_at);
        for index in 0..old.len() {
            let slot = old.slot(index);
            self.push_heap(old.payload(index));
            let offset = self.push_heap(old.at_end(slot.offset, slot.suffix_len));
            let at = HEADER_BYTES + index * SLOT_BYTES;
            self.bytes[at..at + SLOT_BYTES].copy_from_slice(&Slot { offset, ..slot }.encode());
        }
    }
}
