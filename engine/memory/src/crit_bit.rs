//! A persistent, counted crit-bit tree.

use std::ops::Bound;
use std::sync::Arc;

use crate::index::{Cut, Key, OrderedIndex, common_prefix};
use mangrove_engine::Direction;

/// A persistent, counted crit-bit tree: a binary trie that branches only where keys differ.
///
/// The structure is D. J. Bernstein's [crit-bit tree](https://cr.yp.to/critbit.html) (see also A.
/// Langley's annotated [implementation](https://www.imperialviolet.org/binary/critbit.pdf)): D. R.
/// Morrison's [PATRICIA](https://doi.org/10.1145/321479.321481) without strings in the branches. A
/// branch stores just the *critical* bit, the first in which the keys below it differ. So that a
/// key may be a prefix of another, each byte counts as nine bits, the first of which tells whether
/// the key has the byte.
///
/// With *n* entries and keys of *k* bytes, each operation follows a path of at most min(*n*, 9 *k*)
/// branches, about log₂ *n* for random keys, and compares one key. `clone` takes constant time; a
/// change copies the branches on its path that are shared with a clone, 56 bytes each.
///
/// Keys must be shorter than 256 MiB.
#[derive(Clone)]
pub struct CritBit<T> {
    root: Option<Link<T>>,
    len: usize,
}

/// The first bit in which two keys differ: index of the byte × 16 + index of the bit among the
/// nine, the highest one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Critical(u32);

impl Critical {
    /// After all bits.
    const MAX: Self = Self(u32::MAX);

    /// Returns the critical bit of two keys; `None` if they are equal.
    fn between(a: &[u8], b: &[u8]) -> Option<Self> {
        let byte = common_prefix(a, b);
        let difference = symbol(a, byte) ^ symbol(b, byte);
        // The highest of the nine bits has seven zeros before it.
        (difference != 0).then(|| Self((byte as u32) << 4 | (difference.leading_zeros() - 7)))
    }

    /// Index of the child on the side of `key`.
    fn side(self, key: &[u8]) -> usize {
        usize::from(symbol(key, (self.0 >> 4) as usize) >> (8 - (self.0 & 15)) & 1)
    }
}

/// Returns the byte as nine bits, or zero after the end.
fn symbol(key: &[u8], byte: usize) -> u16 {
    key.get(byte).map_or(0, |byte| 0x100 | u16::from(*byte))
}

#[derive(Clone)]
enum Link<T> {
    Leaf(Arc<Leaf<T>>),
    /// The critical bit is stored here because there is room for it beside the tag.
    Branch(Critical, Arc<Branch<T>>),
}

#[derive(Clone)]
struct Leaf<T> {
    key: Key,
    value: T,
}

#[derive(Clone)]
struct Branch<T> {
    /// Number of entries below the first child, whose keys have 0 as their critical bit.
    left: usize,
    children: [Link<T>; 2],
}

impl<T> Default for CritBit<T> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

/// Iterative, because the default drop would recurse as deep as the tree.
impl<T> Drop for CritBit<T> {
    fn drop(&mut self) {
        let mut links = Vec::from_iter(self.root.take());
        while let Some(link) = links.pop() {
            if let Link::Branch(_, node) = link
                && let Some(branch) = Arc::into_inner(node)
            {
                links.extend(branch.children);
            }
        }
    }
}

impl<T> Leaf<T> {
    fn entry(&self) -> (&[u8], &T) {
        (&self.key, &self.value)
    }
}

impl<T> Link<T> {
    /// Returns the outermost leaf on one side.
    fn outermost(&self, side: usize) -> &Leaf<T> {
        let mut link = self;
        loop {
            match link {
                Self::Leaf(leaf) => return leaf,
                Self::Branch(_, node) => link = &node.children[side],
            }
        }
    }
}

impl<T> CritBit<T> {
    /// Returns the only leaf that can have this key; its critical bit with `key` is that of `key`
    /// with the whole tree.
    fn nearest(&self, key: &[u8]) -> Option<&Leaf<T>> {
        let mut link = self.root.as_ref()?;
        loop {
            match link {
                Link::Leaf(leaf) => return Some(leaf),
                Link::Branch(critical, node) => link = &node.children[critical.side(key)],
            }
        }
    }

    /// Returns how many entries precede the cut. Passes to `beyond` the subtrees that follow the
    /// cut in `direction`, the nearest one last.
    fn cut<'a>(&'a self, cut: Cut<'_>, direction: Direction, mut beyond: impl FnMut(&'a Link<T>)) -> usize {
        let (Some(nearest), Some(mut link)) = (self.nearest(cut.key), self.root.as_ref()) else {
            return 0;
        };
        let first = first_side(direction);
        let (end, end_side) = match Critical::between(&nearest.key, cut.key) {
            Some(critical) => (critical, critical.side(cut.key)),
            None => (Critical::MAX, usize::from(cut.after)),
        };
        let mut rank = 0;
        let mut below = self.len;
        while let Link::Branch(critical, node) = link
            && *critical < end
        {
            let side = critical.side(cut.key);
            if side == first {
                beyond(&node.children[1 - side]);
            }
            if side == 0 {
                below = node.left;
            } else {
                rank += node.left;
                below -= node.left;
            }
            link = &node.children[side];
        }
        // Everything from here down is on the same side of the cut.
        if end_side == first {
            beyond(link);
        }
        rank + end_side * below
    }
}

/// Index of the child that comes first in this direction.
fn first_side(direction: Direction) -> usize {
    usize::from(direction == Direction::Reverse)
}

impl<T: Clone> Link<T> {
    /// Index of the child on the side of `key`, if this is a branch before the critical bit `end`.
    fn side_before(&self, end: Critical, key: &[u8]) -> Option<usize> {
        match self {
            Self::Branch(critical, _) if *critical < end => Some(critical.side(key)),
            _ => None,
        }
    }

    fn branch_mut(&mut self) -> &mut Branch<T> {
        match self {
            Self::Branch(_, node) => Arc::make_mut(node),
            Self::Leaf(_) => unreachable!("the caller has seen a branch"),
        }
    }
}

impl<T: Clone> CritBit<T> {
    fn replace(&mut self, key: &[u8], value: T) -> Option<T> {
        let mut link = self.root.as_mut()?;
        loop {
            match link {
                Link::Leaf(leaf) => return Some(std::mem::replace(&mut Arc::make_mut(leaf).value, value)),
                Link::Branch(critical, node) => {
                    let side = critical.side(key);
                    link = &mut Arc::make_mut(node).children[side];
                }
            }
        }
    }
}

impl<T: Clone> OrderedIndex<T> for CritBit<T> {
    type Range<'a>
        = CritBitRange<'a, T>
    where
        T: 'a;

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, key: &[u8]) -> Option<&T> {
        let leaf = self.nearest(key)?;
        (*leaf.key == *key).then_some(&leaf.value)
    }

    fn insert(&mut self, key: &[u8], value: T) -> Option<T> {
        assert!(key.len() < 1 << 28, "a key of 256 MiB or more");
        let end = match self.nearest(key).map(|nearest| Critical::between(&nearest.key, key)) {
            Some(None) => return self.replace(key, value),
            Some(Some(critical)) => critical,
            None => Critical::MAX,
        };
        let leaf = Link::Leaf(Arc::new(Leaf {
            key: Key::new(key),
            value,
        }));
        let mut below = self.len;
        self.len += 1;
        let Some(mut link) = self.root.as_mut() else {
            self.root = Some(leaf);
            return None;
        };
        while let Some(side) = link.side_before(end, key) {
            let branch = link.branch_mut();
            if side == 0 {
                below = branch.left;
                branch.left += 1;
            } else {
                below -= branch.left;
            }
            link = &mut branch.children[side];
        }
        let (left, children) = match end.side(key) {
            0 => (1, [leaf, link.clone()]),
            _ => (below, [link.clone(), leaf]),
        };
        *link = Link::Branch(end, Arc::new(Branch { left, children }));
        None
    }

    fn remove(&mut self, key: &[u8]) -> Option<T> {
        self.get(key)?;
        self.len -= 1;
        if self.len == 0 {
            return self.root.take().and_then(into_value);
        }
        let mut link = self.root.as_mut()?;
        // Descend to the branch whose child is the leaf.
        while let Link::Branch(critical, node) = &*link {
            let side = critical.side(key);
            if let child @ Link::Leaf(_) = &node.children[side] {
                let (leaf, sibling) = (child.clone(), node.children[1 - side].clone());
                // Drop the branch first: while it exists, the leaf has two owners.
                *link = sibling;
                return into_value(leaf);
            }
            let branch = link.branch_mut();
            branch.left -= 1 - side;
            link = &mut branch.children[side];
        }
        None
    }

    fn seek(&self, bound: Bound<&[u8]>, direction: Direction) -> Option<(&[u8], &T)> {
        let mut nearest = self.root.as_ref();
        if let Some(cut) = Cut::new(bound, direction) {
            nearest = None;
            self.cut(cut, direction, |link| nearest = Some(link));
        }
        Some(nearest?.outermost(first_side(direction)).entry())
    }

    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, direction: Direction) -> Self::Range<'_> {
        let lower = Cut::new(lower, Direction::Forward);
        let upper = Cut::new(upper, Direction::Reverse);
        let forward = direction == Direction::Forward;
        let mut pending = Vec::new();
        let mut rank = |cut: Option<Cut<'_>>, starts: bool, unbounded: usize| match cut {
            Some(cut) => self.cut(cut, direction, |link| {
                if starts {
                    pending.push(link);
                }
            }),
            None => {
                if starts {
                    pending.extend(&self.root);
                }
                unbounded
            }
        };
        let below = rank(lower, forward, 0);
        let remaining = rank(upper, !forward, self.len).saturating_sub(below);
        CritBitRange {
            pending,
            first: first_side(direction),
            remaining,
        }
    }

    fn rank(&self, key: &[u8]) -> usize {
        self.cut(Cut { key, after: false }, Direction::Forward, |_| ())
    }

    fn at(&self, position: usize) -> Option<(&[u8], &T)> {
        if position >= self.len {
            return None;
        }
        let mut position = position;
        let mut link = self.root.as_ref()?;
        loop {
            match link {
                Link::Leaf(leaf) => return Some(leaf.entry()),
                Link::Branch(_, node) => {
                    let side = usize::from(position >= node.left);
                    position -= side * node.left;
                    link = &node.children[side];
                }
            }
        }
    }
}

fn into_value<T: Clone>(link: Link<T>) -> Option<T> {
    match link {
        Link::Leaf(leaf) => Some(Arc::unwrap_or_clone(leaf).value),
        Link::Branch(..) => None,
    }
}

/// The entries of a [`CritBit`] between two bounds. A step takes constant time on average.
pub struct CritBitRange<'a, T> {
    /// Subtrees to come, the next one last.
    pending: Vec<&'a Link<T>>,
    first: usize,
    remaining: usize,
}

impl<'a, T> Iterator for CritBitRange<'a, T> {
    type Item = (&'a [u8], &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let mut link = self.pending.pop()?;
        loop {
            match link {
                Link::Leaf(leaf) => return Some(leaf.entry()),
                Link::Branch(_, node) => {
                    self.pending.push(&node.children[1 - self.first]);
                    link = &node.children[self.first];
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<T> ExactSizeIterator for CritBitRange<'_, T> {}
