//! A map for few entries.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// An ordered key.
pub(crate) trait Key {
    fn order(&self, other: &Self) -> Ordering;
}

impl Key for str {
    /// Compares empty strings by length. The default collection's name is empty, and `memcmp` takes
    /// a few hundred cycles for an empty string if masked vector instructions get its dangling
    /// address.
    fn order(&self, other: &Self) -> Ordering {
        if self.is_empty() || other.is_empty() {
            self.len().cmp(&other.len())
        } else {
            self.cmp(other)
        }
    }
}

impl Key for String {
    fn order(&self, other: &Self) -> Ordering {
        self.as_str().order(other)
    }
}

impl Key for u32 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Key for u64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// A map as a sorted list. In WebAssembly, a tree per entry type would be several times the code.
#[derive(Clone, Debug)]
pub(crate) struct SmallMap<K, V> {
    entries: Vec<(K, V)>,
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Key, V> SmallMap<K, V> {
    fn find<Q: Key + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.entries.binary_search_by(|entry| entry.0.borrow().order(key))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains_key<Q: Key + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    pub(crate) fn get<Q: Key + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value<Q: Key + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let (key, value) = self.entries.get(self.find(key).ok()?)?;
        Some((key, value))
    }

    pub(crate) fn get_mut<Q: Key + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let index = self.find(key).ok()?;
        Some(&mut self.entries.get_mut(index)?.1)
    }

    /// Inserts or replaces an entry; returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(index) => Some(std::mem::replace(&mut self.entries[index].1, value)),
            Err(index) => {
                self.entries.insert(index, (key, value));
                None
            }
        }
    }

    /// Returns the value at `key`, inserting it first if it is missing.
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let index = self.find(&key).unwrap_or_else(|index| {
            self.entries.insert(index, (key, make()));
            index
        });
        &mut self.entries[index].1
    }

    pub(crate) fn remove<Q: Key + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let index = self.find(key).ok()?;
        Some(self.entries.remove(index).1)
    }

    /// Iterates in key order.
    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }
}

type Iter<'a, K, V> = std::iter::Map<std::slice::Iter<'a, (K, V)>, fn(&'a (K, V)) -> (&'a K, &'a V)>;

impl<'a, K: Key, V> IntoIterator for &'a SmallMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V> IntoIterator for SmallMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_last_under_a_key() {
        let mut map = SmallMap::default();
        for (id, name) in ["b", "", "d", "a", "c", "b"].into_iter().enumerate() {
            assert_eq!(map.insert(name.to_owned(), id).is_some(), id == 5);
        }
        assert!(map.keys().eq(["", "a", "b", "c", "d"]));
        assert!(map.values().copied().eq([1, 3, 5, 4, 2]));
        assert_eq!((map.get("b"), map.get("e")), (Some(&5), None));
        assert_eq!((map.remove("a"), map.remove("e")), (Some(3), None));
        assert!(!map.contains_key("a"));
        *map.get_mut("d").expect("it is there") = 9;
        assert_eq!(*map.get_or_insert_with("d".to_owned(), || 7), 9);
        assert_eq!(*map.get_or_insert_with("x".to_owned(), || 7), 7);
        assert!(map.keys().eq(["", "b", "c", "d", "x"]));
        assert_eq!(map.len(), 5);
    }
}
