//! Binary search in the slot array by key heads.

use std::cmp::Ordering;

use super::{HEADER_BYTES, Node, SLOT_BYTES, Slot, head_of};

impl Node {
    /// Position of the first cell whose key is not less than `key`, and whether it is equal. In an inner node cell 0 counts as
    /// less or equal to everything the node covers.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> (usize, bool) {
        // Keys are only looked up in nodes whose fences cover them (I6), so the prefix is theirs too.
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        let head = head_of(suffix);
        let slots = &self.bytes[HEADER_BYTES..HEADER_BYTES + self.len() * SLOT_BYTES];
        let slots = slots.as_chunks::<SLOT_BYTES>().0;
        let mut low = usize::from(!self.is_leaf()).min(slots.len());
        let mut high = slots.len();
        while low < high {
            let middle = low.midpoint(high);
            let slot = Slot::decode(&slots[middle]);
            let order = slot
                .head
                .cmp(&head)
                .then_with(|| self.at_end(slot.offset, slot.suffix_len).cmp(suffix));
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// Child of an inner node that covers `key`.
    pub(crate) fn child_index(&self, key: &[u8]) -> usize {
        match self.lower_bound(key) {
            (index, true) => index,
            (index, false) => index.saturating_sub(1),
        }
    }
}
