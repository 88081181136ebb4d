//! Limits on the content of a node of a given size.

/// Values up to this length stay in the leaf at any node size: a reference would be no shorter.
const ALWAYS_INLINE_BYTES: usize = 16;

/// Limits derived from the node size. A node with one record and two fences of maximum length fits
/// (invariant I7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum length of a node, without the block header.
    pub node_capacity: usize,
    pub max_key_bytes: usize,
    /// Records whose key and value together are no longer than this stay in the leaf.
    pub max_inline_bytes: usize,
}

impl Limits {
    /// No limits, for pages of unknown origin.
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

    /// Whether a record of these lengths stays in the leaf.
    pub(crate) fn is_inline(&self, key_len: usize, value_len: usize) -> bool {
        key_len + value_len <= self.max_inline_bytes || value_len <= ALWAYS_INLINE_BYTES
    }

    /// Whether a record's index keys stay in the leaf, beside a value that takes `stored_len` bytes
    /// there.
    pub(crate) fn fits_index_keys(&self, key_len: usize, index_keys_len: usize, stored_len: usize) -> bool {
        key_len + index_keys_len + stored_len <= self.max_inline_bytes
    }
}
