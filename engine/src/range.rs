//! Key ranges and the direction in which they are read.

use std::ops::Bound;

/// The keys between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// Start of the range.
    pub lower: Bound<&'a [u8]>,
    /// End of the range.
    pub upper: Bound<&'a [u8]>,
}

impl KeyRange<'_> {
    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        Self {
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
        }
    }

    /// Whether the range is unbounded.
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!((self.lower, self.upper), (Bound::Unbounded, Bound::Unbounded))
    }
}

/// First key after all keys that start with `prefix`; `None` if there is no such key.
///
/// ```
/// assert_eq!(mangrove_engine::prefix_end(b"ab"), Some(b"ac".to_vec()));
/// assert_eq!(mangrove_engine::prefix_end(&[1, 255]), Some(vec![2]));
/// assert_eq!(mangrove_engine::prefix_end(&[255]), None);
/// ```
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Direction in which a cursor moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Ascending keys.
    #[default]
    Forward,
    /// Descending keys.
    Reverse,
}
