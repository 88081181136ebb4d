//! Redistribution of cells over new nodes: splits and merges.

use super::{Child, HEADER_BYTES, LeafCell, Node, SLOT_BYTES, ValuePlace, common_prefix};

/// One cell on its way to a new node: a whole key and its payload.
pub(crate) struct Cell {
    pub key: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Cell {
    /// Whether it leads to out-of-line values in a node of this level.
    pub(crate) fn has_overflow(&self, level: u8) -> bool {
        if level == 0 {
            matches!(LeafCell::decode(&self.payload).place, ValuePlace::OutOfLine(_))
        } else {
            Child::decode(&self.payload).is_some_and(|child| child.has_overflow)
        }
    }
}

/// Cells in key order.
pub(crate) trait CellList {
    fn len(&self) -> usize;
    fn key(&self, index: usize) -> &[u8];
    fn payload(&self, index: usize) -> &[u8];
}

impl CellList for Vec<Cell> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn key(&self, index: usize) -> &[u8] {
        &self[index].key
    }

    fn payload(&self, index: usize) -> &[u8] {
        &self[index].payload
    }
}

/// Cells whose bytes lie in one buffer: for splits, which would otherwise allocate twice for each cell.
#[derive(Default)]
pub(crate) struct PackedCells {
    bytes: Vec<u8>,
    /// Start of key, start of payload and end of each cell.
    spans: Vec<[usize; 3]>,
}

impl PackedCells {
    /// Takes the cells of a node in place of its own.
    pub(crate) fn copy_from(&mut self, node: &Node) {
        self.bytes.clear();
        self.spans.clear();
        let prefix = node.prefix();
        for index in 0..node.len() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(prefix);
            self.bytes.extend_from_slice(node.suffix(index));
            self.end_cell(start, node.payload(index), index);
        }
    }

    /// Inserts a cell before position `index`.
    pub(crate) fn insert(&mut self, index: usize, key: &[u8], payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.end_cell(start, payload, index);
    }

    fn end_cell(&mut self, start: usize, payload: &[u8], index: usize) {
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.spans.insert(index, [start, middle, self.bytes.len()]);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.spans.remove(index);
    }
}

impl CellList for PackedCells {
    fn len(&self) -> usize {
        self.spans.len()
    }

    fn key(&self, index: usize) -> &[u8] {
        let [start, middle, _] = self.spans[index];
        &self.bytes[start..middle]
    }

    fn payload(&self, index: usize) -> &[u8] {
        let [_, middle, end] = self.spans[index];
        &self.bytes[middle..end]
    }
}

/// Where the cells came from tells how to split them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// The new cell is the last one: the left node stays full.
    Append,
    /// The new cell is the first one: the right node stays full.
    Prepend,
    /// Anything else: halves of equal bytes.
    Middle,
}

/// Cells of a node in key order.
pub(crate) fn cells_of(node: &Node) -> Vec<Cell> {
    (0..node.len())
        .map(|index| Cell {
            key: node.key(index),
            payload: node.payload(index).to_vec(),
        })
        .collect()
}

/// The fence between two cells. Leaves take the shortest key that separates them; an inner node's separators are its children's fences and
/// stay as they are.
pub(crate) fn separator<'a>(level: u8, left: &[u8], right: &'a [u8]) -> &'a [u8] {
    if level > 0 {
        return right;
    }
    let shared = common_prefix(left, right);
    &right[..(shared + 1).min(right.len())]
}

/// A run of cells between two fences, with sums that make "does this part fit a node?" cheap.
struct Layout<'a> {
    cells: &'a dyn CellList,
    /// `sums[i]`: bytes of the first `i` cells without prefix compression, slots included.
    sums: Vec<usize>,
    level: u8,
    capacity: usize,
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

impl<'a> Layout<'a> {
    fn new(cells: &'a dyn CellList, level: u8, capacity: usize, lower: &'a [u8], upper: Option<&'a [u8]>) -> Self {
        let mut sums = Vec::with_capacity(cells.len() + 1);
        let mut sum = 0;
        sums.push(0);
        for index in 0..cells.len() {
            sum += SLOT_BYTES + cells.key(index).len() + cells.payload(index).len();
            sums.push(sum);
        }
        Self {
            cells,
            sums,
            level,
            capacity,
            lower,
            upper,
        }
    }

    /// Fence between cell `at - 1` and cell `at`.
    fn separator(&self, at: usize) -> &'a [u8] {
        separator(self.level, self.cells.key(at - 1), self.cells.key(at))
    }

    fn fences(&self, from: usize, to: usize) -> (&'a [u8], Option<&'a [u8]>) {
        let lower = if from == 0 { self.lower } else { self.separator(from) };
        let upper = if to == self.cells.len() {
            self.upper
        } else {
            Some(self.separator(to))
        };
        (lower, upper)
    }

    fn bytes(&self, from: usize, to: usize) -> usize {
        let (lower, upper) = self.fences(from, to);
        let prefix = upper.map_or(0, |upper| common_prefix(lower, upper));
        let mut bytes = HEADER_BYTES + lower.len() + upper.map_or(0, <[u8]>::len);
        bytes += self.sums[to] - self.sums[from] - (to - from) * prefix;
        if self.level > 0 && from < to {
            bytes -= self.cells.key(from).len() - prefix;
        }
        bytes
    }

    fn fits(&self, from: usize, to: usize) -> bool {
        self.bytes(from, to) <= self.capacity
    }

    fn build(&self, from: usize, to: usize, stamp: u64) -> Node {
        let (lower, upper) = self.fences(from, to);
        let mut node = Node::new(self.capacity, self.level, lower, upper, stamp);
        for index in from..to {
            let inserted = node.insert(index - from, self.cells.key(index), self.cells.payload(index));
            assert!(inserted, "a part that fits by its sums fits in its node");
        }
        node
    }

    /// Split position for two nodes, the one nearest to the pattern's ideal that fits on both sides.
    fn two_way(&self, pattern: Pattern) -> Option<usize> {
        let n = self.cells.len();
        let ideal = match pattern {
            Pattern::Append => n - 1,
            Pattern::Prepend => 1,
            Pattern::Middle => {
                let half = self.sums[n] / 2;
                self.sums.partition_point(|sum| *sum < half)
            }
        };
        let ideal = ideal.clamp(1, n - 1);
        (0..n)
            .flat_map(|distance| [ideal.checked_sub(distance), ideal.checked_add(distance)])
            .flatten()
            .filter(|at| (1..n).contains(at))
            .find(|at| self.fits(0, *at) && self.fits(*at, n))
    }
}

/// Distributes `cells` over as many nodes as needed, in key order: two where possible. The limits on keys and inline values
/// make every single cell fit a node of its own (invariant I7).
pub(crate) fn distribute(cells: &dyn CellList, old: &Node, pattern: Pattern, capacity: usize, stamp: u64) -> Vec<Node> {
    let layout = Layout::new(cells, old.level(), capacity, old.lower_fence(), old.upper_fence());
    let n = cells.len();
    let mut nodes = if layout.fits(0, n) {
        vec![layout.build(0, n, stamp)]
    } else if let Some(at) = layout.two_way(pattern) {
        vec![layout.build(0, at, stamp), layout.build(at, n, stamp)]
    } else {
        let mut nodes = Vec::new();
        let mut from = 0;
        while from < n {
            let to = (from + 1..=n)
                .rev()
                .find(|to| layout.fits(from, *to))
                .unwrap_or(from + 1);
            nodes.push(layout.build(from, to, stamp));
            from = to;
        }
        nodes
    };
    if old.has_overflow() {
        nodes.iter_mut().for_each(Node::mark_overflow);
    }
    nodes
}

/// Bytes that the cells of two neighbours take in one node.
pub(crate) fn merged_bytes(left: &Node, right: &Node) -> usize {
    let prefix = |node: &Node| node.prefix_len();
    let merged_prefix = right
        .upper_fence()
        .map_or(0, |upper| common_prefix(left.lower_fence(), upper));
    let fences = |node: &Node| node.lower_fence().len() + node.upper_fence().map_or(0, <[u8]>::len);
    let cells = |node: &Node| {
        node.used_bytes() - HEADER_BYTES - fences(node) + node.len() * (prefix(node) - merged_prefix.min(prefix(node)))
    };
    // Cell 0 of an inner node on the right gets a real key: its lower fence.
    let first_child_key = if right.is_leaf() { 0 } else { right.lower_fence().len() };
    HEADER_BYTES
        + left.lower_fence().len()
        + right.upper_fence().map_or(0, <[u8]>::len)
        + cells(left)
        + cells(right)
        + first_child_key
}

/// One node with the cells of two neighbours. The caller checked [`merged_bytes`].
pub(crate) fn merge(left: &Node, right: &Node, capacity: usize, stamp: u64) -> Node {
    let mut node = Node::new(capacity, left.level(), left.lower_fence(), right.upper_fence(), stamp);
    for source in [left, right] {
        let mut key = Vec::new();
        for index in 0..source.len() {
            source.key_into(index, &mut key);
            let inserted = node.insert(node.len(), &key, source.payload(index));
            assert!(inserted, "neighbours that fit by their sums fit in one node");
        }
        if source.has_overflow() {
            node.mark_overflow();
        }
    }
    node
}
