//! What a node of a given size may hold.

/// The longest value that stays in its leaf whatever the node size: it is no longer than the reference that would replace it.
const ALWAYS_INLINE_BYTES: usize = 16;

/// Limits that follow from the node size (invariant I7: a node with one record and two fences of full length fits).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of a node without the block header.
    pub node_capacity: usize,
    pub max_key_bytes: usize,
    /// Records with key and value up to this size together stay in the leaf.
    pub max_inline_bytes: usize,
}

impl Limits {
    /// Those of pages of unknown origin: none.
    pub(crate) const NONE: Self = Self {
        node_capacity: usize::MAX,
        max_key_bytes: usize::MAX,
        max_inline_bytes: usize::MAX,
    };

    pub(crate) fn new(node_bytes: usize) -> Self {
        let node_capacity = (node_bytes - crate::block::HEADER_BYTES).min(65504);
        Self {
            node_capacity,
            max_key_bytes: ((node_bytes - 160) / 3).min(node_bytes / 4),
            max_inline_bytes: node_capacity / 4,
        }
    }

    /// Whether a record stays in the leaf.
    pub(crate) fn is_inline(&self, key_len: usize, value_len: usize) -> bool {
        key_len + value_len <= self.max_inline_bytes || value_len <= ALWAYS_INLINE_BYTES
    }
}
