//! Key ranges, and holes: ranges that references do not reach.

use crate::node::Node;
use crate::pages::Expected;

/// Memory limit for one tree's list of holes. Beyond it, holes are merged; the scan finds the keys
/// between them.
const MAX_HOLE_BYTES: usize = 4 << 20;
/// Keys from `lower` up to, not including, `upper`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) lower: Vec<u8>,
    pub(super) upper: Option<Vec<u8>>,
}

impl Range {
    pub(super) fn of(node: &Node) -> Self {
        Self {
            lower: node.lower_fence().to_vec(),
            upper: node.upper_fence().map(<[u8]>::to_vec),
        }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_slice() <= key && self.upper.as_ref().is_none_or(|upper| key < upper.as_slice())
    }

    fn intersection(&self, other: &Self) -> Option<Self> {
        let upper = match (&self.upper, &other.upper) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.as_ref().or(b.as_ref()),
        };
        let both = Self {
            lower: (&self.lower).max(&other.lower).clone(),
            upper: upper.cloned(),
        };
        both.upper
            .as_ref()
            .is_none_or(|upper| both.lower < *upper)
            .then_some(both)
    }
}

/// Keys whose node cannot be reached.
pub(super) struct Hole {
    pub(super) range: Range,
    /// Records that should be there.
    pub(super) expected: Option<u64>,
}

/// Holes in key order.
#[derive(Default)]
pub(super) struct Holes {
    pub(super) list: Vec<Hole>,
    bytes: usize,
}

impl Holes {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn add(&mut self, expected: &Expected<'_>, count: Option<u64>) {
        let upper = expected.upper.map(<[u8]>::to_vec);
        let bytes = expected.lower.len() + upper.as_ref().map_or(0, Vec::len) + size_of::<Hole>();
        if let Some(last) = self.list.last_mut() {
            let is_neighbour = last.range.upper.as_deref() == Some(expected.lower);
            if is_neighbour || self.bytes + bytes > MAX_HOLE_BYTES {
                let sum = last.expected.zip(count).and_then(|(a, b)| a.checked_add(b));
                last.expected = sum.filter(|_| is_neighbour);
                last.range.upper = upper;
                return;
            }
        }
        self.bytes += bytes;
        self.list.push(Hole {
            range: Range {
                lower: expected.lower.to_vec(),
                upper,
            },
            expected: count,
        });
    }

    /// Parts of the holes that a range covers.
    pub(super) fn parts<'a>(&'a self, range: &'a Range) -> impl Iterator<Item = Range> + 'a {
        let is_before = |hole: &Hole| hole.range.upper.as_ref().is_some_and(|upper| *upper <= range.lower);
        let first = self.list.partition_point(is_before);
        let overlapping = self.list[first..].iter().map(|hole| range.intersection(&hole.range));
        overlapping.map_while(|part| part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(lower: &[u8], upper: Option<&[u8]>) -> Range {
        Range {
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
        }
    }

    fn add(holes: &mut Holes, lower: &[u8], upper: Option<&[u8]>, count: u64) {
        let expected = Expected {
            owner: 1,
            level: None,
            count,
            lower,
            upper,
        };
        holes.add(&expected, Some(count));
    }

    #[test]
    fn neighbours_become_one_hole_and_parts_are_cut_out() {
        let mut holes = Holes::default();
        add(&mut holes, b"b", Some(b"d"), 2);
        add(&mut holes, b"d", Some(b"f"), 3);
        add(&mut holes, b"h", Some(b"k"), 1);
        add(&mut holes, b"x", None, 1);
        assert_eq!(holes.list.len(), 3);
        assert_eq!(holes.list[0].expected, Some(5));
        let parts = |lower: &[u8], upper: Option<&[u8]>| holes.parts(&range(lower, upper)).collect::<Vec<_>>();
        assert_eq!(parts(b"", Some(b"b")), []);
        assert_eq!(parts(b"f", Some(b"h")), []);
        assert_eq!(
            parts(b"c", Some(b"i")),
            [range(b"c", Some(b"f")), range(b"h", Some(b"i"))]
        );
        assert_eq!(parts(b"z", None), [range(b"z", None)]);
        assert_eq!(parts(b"", None).len(), 3);
    }

    /// Too many holes are merged into wider ones: the scan finds the keys between them.
    #[test]
    fn the_list_is_bounded_and_covers_every_hole() {
        let mut holes = Holes::default();
        let key = |number: u32| [&number.to_be_bytes()[..], &[0; 4000]].concat();
        let all = || (0..3000_u32).map(|number| (key(number * 2), key(number * 2 + 1)));
        for (lower, upper) in all() {
            add(&mut holes, &lower, Some(&upper), 1);
        }
        assert!(holes.bytes <= MAX_HOLE_BYTES && holes.list.len() < 600);
        for (lower, upper) in all() {
            let whole = range(&lower, Some(&upper));
            assert!(holes.parts(&whole).eq([whole.clone()]));
        }
        assert_eq!(holes.list.last().and_then(|hole| hole.expected), None);
    }
}
