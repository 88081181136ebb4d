//! The cells of one level of the new tree that are not written yet, and how they are spread over
//! nodes.

use crate::node::{Child, HEADER_BYTES, LeafCell, Node, SLOT_BYTES, ValuePlace, common_prefix};

/// A run of at least this many nodes can be spread over one more, leaving all of them nine tenths
/// full.
pub(super) const RUN_NODES: usize = 9;

/// Minimum fill of a run in percent, in a dense merge, and in a sparse one where a node was split.
const DENSE_FILL: usize = 90;
const SPLIT_FILL: usize = 80;
/// Minimum fill of a run that a sparse merge has not made longer. It is lower than `SPLIT_FILL`, so
/// that a node that shrinks or grows a little is rewritten alone.
const LEAST_FILL: usize = 50;

/// A sequence of cells in one buffer.
#[derive(Default)]
pub(super) struct Cells {
    pub(super) bytes: Vec<u8>,
    /// Start of key, start of payload and end of each cell. The cells are adjacent.
    spans: Vec<[usize; 3]>,
}

impl Cells {
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn push(&mut self, key: &[u8], payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.spans.push([start, middle, self.bytes.len()]);
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        let [start, middle, _] = self.spans[index];
        &self.bytes[start..middle]
    }

    pub(super) fn payload(&self, index: usize) -> &[u8] {
        let [_, middle, end] = self.spans[index];
        &self.bytes[middle..end]
    }

    /// Bytes that cells `from..to` take in a node without a common prefix, slots included.
    pub(super) fn bytes(&self, from: usize, to: usize) -> usize {
        if from == to {
            return 0;
        }
        self.spans[to - 1][2] - self.spans[from][0] + (to - from) * SLOT_BYTES
    }

    pub(super) fn drop_front(&mut self, count: usize) {
        let end = self.spans.get(count).map_or(self.bytes.len(), |span| span[0]);
        self.bytes.drain(..end);
        self.spans.drain(..count);
        for span in self.spans.iter_mut().flatten() {
            *span -= end;
        }
    }
}

/// The fence between two cells. Between leaves it is the shortest key that separates them. Between
/// inner nodes it is a child's fence, unchanged.
pub(super) fn separator<'a>(level: u8, left: &[u8], right: &'a [u8]) -> &'a [u8] {
    if level > 0 {
        return right;
    }
    let shared = common_prefix(left, right);
    &right[..(shared + 1).min(right.len())]
}

/// The unwritten part of one level of the new tree.
#[derive(Default)]
pub(super) struct Level {
    pub(super) number: u8,
    /// Lower fence of the next node.
    pub(super) lower: Vec<u8>,
    pub(super) cells: Cells,
    /// Number of old nodes whose cells are held here.
    pub(super) taken: usize,
}

impl Level {
    pub(super) fn fence(&self, at: usize) -> &[u8] {
        if at == 0 {
            &self.lower
        } else {
            separator(self.number, self.cells.key(at - 1), self.cells.key(at))
        }
    }

    /// Upper fence of a node that ends before cell `at`; the last node ends at `end`.
    pub(super) fn upper<'a>(&'a self, at: usize, end: Option<&'a [u8]>) -> Option<&'a [u8]> {
        if at == self.cells.len() {
            end
        } else {
            Some(self.fence(at))
        }
    }

    pub(super) fn node_bytes(&self, from: usize, to: usize, end: Option<&[u8]>) -> usize {
        let (lower, upper) = (self.fence(from), self.upper(to, end));
        let prefix = upper.map_or(0, |upper| common_prefix(lower, upper));
        let mut bytes = HEADER_BYTES + lower.len() + upper.map_or(0, <[u8]>::len);
        bytes += self.cells.bytes(from, to) - (to - from) * prefix;
        if self.number > 0 && from < to {
            // The first child's key is the lower fence.
            bytes -= self.cells.key(from).len() - prefix;
        }
        bytes
    }

    /// End of a full node that starts with cell `from`.
    pub(super) fn full_end(&self, from: usize, end: Option<&[u8]>, capacity: usize) -> usize {
        let len = self.cells.len();
        let mut to = from + 1;
        // This much fits even without a common prefix.
        while to < len && self.cells.bytes(from, to + 1) + HEADER_BYTES + self.lower.len() < capacity / 2 {
            to += 1;
        }
        let mut last_fit = from + 1;
        while to <= len {
            if self.node_bytes(from, to, end) <= capacity {
                last_fit = to;
            } else if to > last_fit + 8 {
                // A shorter separator may make a longer node fit again, but only a little further.
                break;
            }
            to += 1;
        }
        last_fit
    }

    /// Ends of the nodes if each is filled before the next one starts.
    pub(super) fn packed(&self, end: Option<&[u8]>, capacity: usize) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut from = 0;
        while from < self.cells.len() {
            from = self.full_end(from, end, capacity);
            ends.push(from);
        }
        ends
    }

    /// Ends of `count` nodes, as many as `packed` returns, with the cells spread evenly; `None` if
    /// a node would overflow or be empty.
    pub(super) fn spread(&self, count: usize, end: Option<&[u8]>, capacity: usize) -> Option<Vec<usize>> {
        let len = self.cells.len();
        let total = self.cells.bytes(0, len);
        let mut ends = Vec::with_capacity(count);
        let mut from = 0;
        for node in 1..=count {
            let to = if node == count {
                len
            } else {
                let target = total * node / count;
                let mut to = from + 1;
                while to < len && self.cells.bytes(0, to) < target {
                    to += 1;
                }
                to
            };
            if from >= to || self.node_bytes(from, to, end) > capacity {
                return None;
            }
            ends.push(to);
            from = to;
        }
        Some(ends)
    }

    /// Whether a run may end at `boundary`: it is empty and no node is needed, or it is full
    /// enough.
    pub(super) fn may_end(&self, boundary: &[u8], capacity: usize, is_dense: bool) -> bool {
        if self.cells.len() == 0 {
            return self.lower == boundary;
        }
        let ends = self.packed(Some(boundary), capacity);
        let full = ends.len() - 1;
        let last = self.node_bytes(
            full.checked_sub(1).map_or(0, |before| ends[before]),
            self.cells.len(),
            Some(boundary),
        );
        let least_fill = match is_dense {
            true => DENSE_FILL,
            false if ends.len() > self.taken => SPLIT_FILL,
            false => LEAST_FILL,
        };
        full >= RUN_NODES || (full * capacity + last) * 100 >= ends.len() * capacity * least_fill
    }

    pub(super) fn build(&self, from: usize, to: usize, end: Option<&[u8]>, capacity: usize) -> Node {
        let capacity = capacity.max(self.node_bytes(from, to, end));
        let mut node = Node::new(capacity, self.number, self.fence(from), self.upper(to, end));
        for index in from..to {
            let payload = self.cells.payload(index);
            if has_overflow(self.number, payload) {
                node.mark_overflow();
            }
            let inserted = node.insert(index - from, self.cells.key(index), payload);
            assert!(inserted, "cells that fit by their sums fit in a node");
        }
        node
    }
}

pub(super) fn has_overflow(level: u8, payload: &[u8]) -> bool {
    if level == 0 {
        matches!(LeafCell::decode(payload).place, ValuePlace::OutOfLine(_))
    } else {
        Child::decode(payload).is_some_and(|child| child.has_overflow)
    }
}
