//! Key ranges and the direction in which they are read.

use std::ops::{Bound, RangeBounds};

/// The keys between two bounds.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// Start of the range.
    pub lower: Bound<&'a [u8]>,
    /// End of the range.
    pub upper: Bound<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// The keys of a range of texts or bytes.
    ///
    /// ```
    /// # use mangrove_engine::KeyRange;
    /// let [a, b] = [&b"a"[..], &b"b"[..]];
    /// let ranges = [KeyRange::new(a..b), KeyRange::new(a..=b), KeyRange::new(b..), KeyRange::new("a".."b")];
    /// # assert_eq!(ranges[0].lower, ranges[3].lower);
    /// # assert_eq!(ranges[2].upper, KeyRange::all().upper);
    /// ```
    #[must_use]
    pub fn new<K: AsRef<[u8]> + ?Sized + 'a>(range: impl RangeBounds<&'a K>) -> Self {
        Self {
            lower: range.start_bound().map(|key| (*key).as_ref()),
            upper: range.end_bound().map(|key| (*key).as_ref()),
        }
    }

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

/// All keys that start with the same bytes.
///
/// ```
/// # use std::sync::Arc;
/// # use mangrove_engine::{Database, Direction, Durability, KeyPrefix, Options, storage::MemoryStorage};
/// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// database.set("notes", b"2026/a", b"1", Durability::Relaxed)?;
/// database.set("notes", b"2027/a", b"2", Durability::Relaxed)?;
/// let notes = database.snapshot().collection("notes").expect("it was just written");
/// assert_eq!(notes.count(KeyPrefix::new(b"2026/").range())?, 1);
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct KeyPrefix<'a> {
    prefix: &'a [u8],
    end: Option<Vec<u8>>,
}

impl<'a> KeyPrefix<'a> {
    /// The keys that start with `prefix`; with an empty one, all keys.
    #[must_use]
    pub fn new(prefix: &'a [u8]) -> Self {
        Self {
            prefix,
            end: prefix_end(prefix),
        }
    }

    /// The range of these keys.
    #[must_use]
    pub fn range(&self) -> KeyRange<'_> {
        KeyRange {
            lower: Bound::Included(self.prefix),
            upper: self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        }
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
