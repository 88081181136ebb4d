//! The collections of one version by name.

use super::Collection;

/// A sorted list: each transaction copies it as a whole, and in WebAssembly a tree with these keys would be several times the code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collections {
    entries: Vec<(String, Collection)>,
}

impl Collections {
    fn find(&self, name: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.0.as_str().cmp(name))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn contains_key(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Collection> {
        self.get_key_value(name).map(|(_, collection)| collection)
    }

    pub(crate) fn get_key_value(&self, name: &str) -> Option<(&String, &Collection)> {
        let (name, collection) = self.entries.get(self.find(name).ok()?)?;
        Some((name, collection))
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Collection> {
        let index = self.find(name).ok()?;
        Some(&mut self.entries.get_mut(index)?.1)
    }

    /// Inserts or replaces.
    pub(crate) fn insert(&mut self, name: String, collection: Collection) {
        match self.find(&name) {
            Ok(index) => self.entries[index].1 = collection,
            Err(index) => self.entries.insert(index, (name, collection)),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Collection> {
        let index = self.find(name).ok()?;
        Some(self.entries.remove(index).1)
    }

    /// In the order of the names.
    pub(crate) fn iter(&self) -> Iter<'_> {
        self.entries.iter().map(|(name, collection)| (name, collection))
    }

    /// From the first name that is not before `start`.
    pub(crate) fn iter_from(&self, start: &str) -> impl Iterator<Item = (&String, &Collection)> {
        let first = self.find(start).unwrap_or_else(|index| index);
        self.entries[first..]
            .iter()
            .map(|(name, collection)| (name, collection))
    }

    /// As [`iter_from`](Self::iter_from), to change them.
    pub(crate) fn iter_mut_from(&mut self, start: &str) -> impl Iterator<Item = (&String, &mut Collection)> {
        let first = self.find(start).unwrap_or_else(|index| index);
        self.entries[first..]
            .iter_mut()
            .map(|(name, collection)| (&*name, collection))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.entries.iter().map(|(name, _)| name)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Collection> {
        self.entries.iter_mut().map(|(_, collection)| collection)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Collection> {
        self.entries.iter().map(|(_, collection)| collection)
    }
}

type Iter<'a> = std::iter::Map<
    std::slice::Iter<'a, (String, Collection)>,
    fn(&'a (String, Collection)) -> (&'a String, &'a Collection),
>;

impl<'a> IntoIterator for &'a Collections {
    type Item = (&'a String, &'a Collection);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_id(id: u32) -> Collection {
        Collection {
            id,
            root: None,
            key_codec: String::new(),
            value_codec: String::new(),
        }
    }

    #[test]
    fn finds_what_was_inserted_last_under_a_name() {
        let mut collections = Collections::default();
        for (id, name) in ["b", "", "d", "a", "c", "b"].into_iter().enumerate() {
            collections.insert(name.to_owned(), with_id(id as u32));
        }
        assert!(collections.keys().eq(["", "a", "b", "c", "d"]));
        assert!(collections.values().map(|entry| entry.id).eq([1, 3, 5, 4, 2]));
        assert_eq!(collections.get("b"), Some(&with_id(5)));
        assert_eq!(collections.get("e"), None);
        collections.remove("a");
        collections.remove("e");
        assert!(!collections.contains_key("a"));
        collections.get_mut("d").expect("it is there").id = 9;
        assert_eq!(collections.get("d"), Some(&with_id(9)));
        assert_eq!(collections.len(), 4);
    }
}
