//! A cursor over a range of one tree: both directions, seek and skip, no allocation per step.
//!
//! The position is the path from the root. The cursor holds every node of it, so a step inside a
//! leaf touches nothing else. Keys are compared with the bounds only in the leaf where the range
//! ends.

use std::ops::Bound;
use std::sync::Arc;

use super::{Pages, read};
use crate::error::{Error, Result};
use crate::node::{Child, LeafCell, Node};
use crate::pages::Access;
use crate::range::{Direction, KeyRange};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not positioned: the next step starts at the start of the range.
    Start,
    /// The path points to the item that the next step returns.
    Ahead,
    /// The path points to the current item.
    On,
    Done,
}

/// Position in a tree. Each call must pass the same pages.
pub(crate) struct TreeCursor {
    root: Option<Child>,
    /// The root's page, if the caller has it.
    root_node: Option<Arc<Node>>,
    owner: u32,
    direction: Direction,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    path: Vec<(Arc<Node>, usize)>,
    /// The path before the current move; empty between moves.
    before: Vec<(Arc<Node>, usize)>,
    /// The whole leaf lies before the end of the range.
    inside: bool,
    state: State,
    key: Vec<u8>,
    /// Offset of the current record's payload in the leaf.
    payload: usize,
}

fn owned(bound: Bound<&[u8]>) -> Bound<Vec<u8>> {
    bound.map(<[u8]>::to_vec)
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl TreeCursor {
    pub(crate) fn new(root: Option<Child>, owner: u32, range: &KeyRange<'_>, direction: Direction) -> Self {
        Self {
            root,
            root_node: None,
            owner,
            direction,
            lower: owned(range.lower),
            upper: owned(range.upper),
            path: Vec::with_capacity(8),
            before: Vec::new(),
            inside: false,
            state: State::Start,
            key: Vec::new(),
            payload: 0,
        }
    }

    /// Spares the cursor the lookup of the root in the page table.
    pub(crate) fn with_root(mut self, node: Option<&Arc<Node>>) -> Self {
        self.root_node = node.cloned();
        self
    }

    fn load_root(&self, pages: &impl Pages, root: &Child) -> Result<Arc<Node>> {
        match &self.root_node {
            Some(node) => Ok(Arc::clone(node)),
            None => pages.root(root, self.owner),
        }
    }

    /// The range of the cursor.
    pub(crate) fn range(&self) -> KeyRange<'_> {
        KeyRange {
            lower: borrowed(&self.lower),
            upper: borrowed(&self.upper),
        }
    }

    /// Key of the current record.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Value of the current record; `None` if it is out of line or there is no record.
    #[inline]
    pub(crate) fn inline_value(&self) -> Option<&[u8]> {
        if self.state != State::On {
            return None;
        }
        self.path.last()?.0.inline_value_at(self.payload)
    }

    /// The current record; `None` before the first step and after the last.
    pub(crate) fn record(&self) -> Option<LeafCell<'_>> {
        let (leaf, index) = self.path.last()?;
        (self.state == State::On).then(|| leaf.record(*index))
    }

    /// The most common step: from one record of a leaf to another, in a leaf that lies inside the
    /// range. `false`, with nothing changed, if [`advance`](Self::advance) has to make the step.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "each record of a scan runs through it, and WebAssembly inlines less"
    )]
    pub(crate) fn step_inside(&mut self) -> bool {
        if self.state != State::On || !self.inside {
            return false;
        }
        let Some((leaf, index)) = self.path.last_mut() else {
            return false;
        };
        let next = match self.direction {
            Direction::Forward => *index + 1,
            Direction::Reverse => index.wrapping_sub(1),
        };
        let Some(payload) = leaf.step_to(next, &mut self.key) else {
            return false;
        };
        *index = next;
        self.payload = payload;
        true
    }

    /// Number of further records in the leaf before the first one at or past `key` in the cursor's
    /// direction; 0 if the leaf may not lie inside the range.
    pub(crate) fn steps_before(&self, key: &[u8]) -> usize {
        let Some((leaf, index)) = self.path.last().filter(|_| self.inside && self.state == State::On) else {
            return 0;
        };
        let (at, is_there) = leaf.lower_bound_outside(key);
        match self.direction {
            Direction::Forward => at.saturating_sub(index + 1),
            Direction::Reverse => index.saturating_sub(at + usize::from(is_there)),
        }
    }

    /// Moves to the next record of the range; `false` at its end.
    pub(crate) fn advance(&mut self, pages: &impl Pages) -> Result<bool> {
        match self.state {
            State::Done => return Ok(false),
            State::Start => self.attempt(|cursor| cursor.start(pages))?,
            State::On => {
                if !self.step_in_leaf() {
                    self.attempt(|cursor| cursor.next_leaf(pages))?;
                }
            }
            State::Ahead => {}
        }
        if self.state == State::Done {
            return Ok(false);
        }
        let (leaf, index) = self.path.last().expect("a position has a leaf");
        leaf.key_into(*index, &mut self.key);
        self.payload = leaf.payload_at(*index);
        if !self.inside && self.is_past_end() {
            self.finish();
            return Ok(false);
        }
        self.state = State::On;
        Ok(true)
    }

    /// Makes a move that reads pages; if a page cannot be read, the cursor stays where it was.
    fn attempt(&mut self, make: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let (state, inside) = (self.state, self.inside);
        self.before.clone_from(&self.path);
        let result = make(self);
        if result.is_err() {
            std::mem::swap(&mut self.path, &mut self.before);
            (self.state, self.inside) = (state, inside);
        }
        self.before.clear();
        result
    }

    /// Makes the next step return the first record at or past `key` in the cursor's direction,
    /// inside the range.
    pub(crate) fn seek(&mut self, pages: &impl Pages, key: &[u8]) -> Result<()> {
        self.attempt(|cursor| cursor.go_to(pages, key))
    }

    fn go_to(&mut self, pages: &impl Pages, key: &[u8]) -> Result<()> {
        let beyond_start = match self.direction {
            Direction::Forward => match &self.lower {
                Bound::Unbounded => true,
                Bound::Included(lower) | Bound::Excluded(lower) => key > lower.as_slice(),
            },
            Direction::Reverse => match &self.upper {
                Bound::Unbounded => true,
                Bound::Included(upper) | Bound::Excluded(upper) => key < upper.as_slice(),
            },
        };
        if beyond_start {
            self.position(pages, Bound::Included(key))
        } else {
            self.start(pages)
        }
    }

    /// Skips the next `count` records in O(log n).
    pub(crate) fn skip(&mut self, pages: &impl Pages, count: u64) -> Result<()> {
        if count == 0 || self.state == State::Done {
            return Ok(());
        }
        self.attempt(|cursor| cursor.pass_over(pages, count))
    }

    fn pass_over(&mut self, pages: &impl Pages, count: u64) -> Result<()> {
        if self.state == State::Start {
            self.start(pages)?;
        } else if self.state == State::On && !self.step_in_leaf() {
            self.next_leaf(pages)?;
        }
        if self.state == State::Done {
            return Ok(());
        }
        let here = self.index();
        let target = match self.direction {
            Direction::Forward => here.checked_add(count),
            Direction::Reverse => here.checked_sub(count),
        };
        let total = self.root.map_or(0, |root| root.count);
        if let Some(target) = target.filter(|target| *target < total) {
            return self.position_at(pages, target);
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        self.state = State::Done;
        self.path.clear();
    }

    fn start(&mut self, pages: &impl Pages) -> Result<()> {
        let start = match self.direction {
            Direction::Forward => &mut self.lower,
            Direction::Reverse => &mut self.upper,
        };
        let bound = std::mem::replace(start, Bound::Unbounded);
        let found = self.position(pages, borrowed(&bound));
        match self.direction {
            Direction::Forward => self.lower = bound,
            Direction::Reverse => self.upper = bound,
        }
        found
    }

    /// Moves to the first record at or past the bound in the cursor's direction.
    fn position(&mut self, pages: &impl Pages, bound: Bound<&[u8]>) -> Result<()> {
        self.path.clear();
        let Some(root) = self.root else {
            self.state = State::Done;
            return Ok(());
        };
        let forward = self.direction == Direction::Forward;
        let mut node = self.load_root(pages, &root)?;
        while !node.is_leaf() {
            let index = match bound {
                Bound::Included(key) | Bound::Excluded(key) => node.child_index(key),
                Bound::Unbounded if forward => 0,
                Bound::Unbounded => node.len() - 1,
            };
            let child = pages.child(&node, index, self.owner, Access::Scan)?;
            self.path.push((node, index));
            node = child;
        }
        // Index of the wanted record, or an index outside the leaf if it is in a neighbour.
        let index = match bound {
            Bound::Unbounded if forward => Some(0),
            Bound::Unbounded => node.len().checked_sub(1),
            Bound::Included(key) | Bound::Excluded(key) => {
                let (index, found) = node.lower_bound(key);
                let skip_equal = found && matches!(bound, Bound::Excluded(_));
                let take_equal = found && !skip_equal;
                if forward {
                    Some(index + usize::from(skip_equal))
                } else if take_equal {
                    Some(index)
                } else {
                    index.checked_sub(1)
                }
            }
        };
        let in_leaf = index.filter(|index| *index < node.len());
        self.state = State::Ahead;
        self.push_leaf(node, in_leaf.unwrap_or(0));
        if in_leaf.is_none() {
            self.next_leaf(pages)?;
        }
        Ok(())
    }

    fn position_at(&mut self, pages: &impl Pages, mut index: u64) -> Result<()> {
        self.path.clear();
        let root = self.root.expect("a tree with positions has a root");
        let mut node = self.load_root(pages, &root)?;
        while !node.is_leaf() {
            let (child, rest) = read::child_at(&node, index);
            index = rest;
            let below = pages.child(&node, child, self.owner, Access::Scan)?;
            self.path.push((node, child));
            node = below;
        }
        if index >= node.len() as u64 {
            return Err(Error::corrupt("a leaf holds fewer records than its parents say"));
        }
        self.state = State::Ahead;
        self.push_leaf(node, index as usize);
        Ok(())
    }

    /// Position of the path's record in the whole tree.
    fn index(&self) -> u64 {
        self.path
            .iter()
            .map(|(node, index)| {
                if node.is_leaf() {
                    *index as u64
                } else {
                    node.count_children(0, *index)
                }
            })
            .sum()
    }

    /// Moves to the next record of the leaf; `false` if there is none.
    fn step_in_leaf(&mut self) -> bool {
        let (leaf, index) = self.path.last_mut().expect("a position has a leaf");
        let next = match self.direction {
            Direction::Forward => index.checked_add(1).filter(|next| *next < leaf.len()),
            Direction::Reverse => index.checked_sub(1),
        };
        if let Some(next) = next {
            *index = next;
            self.state = State::Ahead;
        }
        next.is_some()
    }

    /// Moves to the near end of the next leaf that has records.
    fn next_leaf(&mut self, pages: &impl Pages) -> Result<()> {
        let forward = self.direction == Direction::Forward;
        self.path.pop();
        while let Some((node, index)) = self.path.last_mut() {
            let next = if forward {
                index.checked_add(1).filter(|next| *next < node.len())
            } else {
                index.checked_sub(1)
            };
            let Some(next) = next else {
                self.path.pop();
                continue;
            };
            *index = next;
            let mut child = pages.child(node, next, self.owner, Access::Scan)?;
            while !child.is_leaf() {
                let index = if forward { 0 } else { child.len() - 1 };
                let below = pages.child(&child, index, self.owner, Access::Scan)?;
                self.path.push((child, index));
                child = below;
            }
            if child.len() > 0 {
                let index = if forward { 0 } else { child.len() - 1 };
                self.state = State::Ahead;
                self.push_leaf(child, index);
                return Ok(());
            }
        }
        self.finish();
        Ok(())
    }

    fn push_leaf(&mut self, leaf: Arc<Node>, index: usize) {
        self.inside = match self.direction {
            Direction::Forward => match &self.upper {
                Bound::Unbounded => true,
                Bound::Included(end) | Bound::Excluded(end) => {
                    leaf.upper_fence().is_some_and(|fence| fence <= end.as_slice())
                }
            },
            Direction::Reverse => match &self.lower {
                Bound::Unbounded => true,
                Bound::Included(end) => leaf.lower_fence() >= end.as_slice(),
                Bound::Excluded(end) => leaf.lower_fence() > end.as_slice(),
            },
        };
        self.path.push((leaf, index));
    }

    fn is_past_end(&self) -> bool {
        match self.direction {
            Direction::Forward => match &self.upper {
                Bound::Unbounded => false,
                Bound::Included(end) => self.key.as_slice() > end.as_slice(),
                Bound::Excluded(end) => self.key.as_slice() >= end.as_slice(),
            },
            Direction::Reverse => match &self.lower {
                Bound::Unbounded => false,
                Bound::Included(end) => self.key.as_slice() < end.as_slice(),
                Bound::Excluded(end) => self.key.as_slice() <= end.as_slice(),
            },
        }
    }
}
