//! What a node of a given size may hold.

use super::{Node, ValuePlace};
use crate::error::{Error, Result};

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

impl Node {
    /// Accepts a valid page if all its keys and records are within the limits, so that it can be split (I7).
    pub(crate) fn check_limits(&self, limits: &Limits) -> Result<()> {
        let fences = self.lower_fence().len().max(self.upper_fence().map_or(0, <[u8]>::len));
        let is_within = (0..self.len()).all(|index| {
            let key_len = self.prefix_len() + self.suffix(index).len();
            let fits = !self.is_leaf()
                || match self.record(index).place {
                    ValuePlace::Inline(value) => limits.is_inline(key_len, value.len()),
                    ValuePlace::OutOfLine(_) => true,
                };
            fits && key_len <= limits.max_key_bytes
        });
        if is_within && fences <= limits.max_key_bytes {
            Ok(())
        } else {
            Err(Error::corrupt("a key or record is longer than the node size allows"))
        }
    }
}
