//! Determines which collections exist, and which existed once.

use std::collections::{BTreeMap, BTreeSet};

use super::control::Flow;
use super::holes::Range;
use super::target::LostKeys;
use super::tree::{Outcome, Salvage, Sink};
use crate::error::Result;
use crate::node::Child;
use crate::state::Collection;
use crate::state::expiry::HIDDEN;

/// A collection to be recovered.
pub(super) struct Entry {
    /// `None` if its name is lost.
    pub(super) name: Option<String>,
    pub(super) collection: Collection,
    /// Generation of the catalog with this entry.
    pub(super) as_of: u64,
}

impl Entry {
    /// Whether this is one of the engine's own collections.
    pub(super) fn is_hidden(&self) -> bool {
        self.name.as_ref().is_some_and(|name| name.starts_with(HIDDEN))
    }
}

/// The catalog's records.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) list: BTreeMap<Vec<u8>, Entry>,
    pub(super) lost: LostKeys,
}

fn decode(key: &[u8], value: &[u8], generation: u64) -> Option<Entry> {
    Some(Entry {
        name: Some(String::from_utf8(key.to_vec()).ok()?),
        collection: Collection::decode(value).ok()?,
        as_of: generation,
    })
}

impl Sink for Entries {
    fn clear(&mut self, range: &Range) -> Result<()> {
        self.list.retain(|name, _| !range.contains(name));
        self.lost.clear(range);
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8], _expires: u64, generation: u64) -> Result<()> {
        match decode(key, value, generation) {
            Some(entry) => {
                self.lost.remove(key);
                self.list.insert(key.to_vec(), entry);
            }
            None => self.lose(key),
        }
        Ok(())
    }

    fn lose(&mut self, key: &[u8]) {
        self.lost.add(key);
    }

    fn end_leaf(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Lists all possible collections: those of the catalog, then those whose entry is lost.
pub(super) fn collections(salvage: &mut Salvage<'_>, root: Option<Child>, as_of: u64) -> Flow<(Vec<Entry>, Outcome)> {
    let mut entries = Entries::default();
    let outcome = salvage.tree(0, root, as_of, &mut entries)?;
    let is_whole = outcome.holes.is_empty() && entries.lost.is_empty();
    entries.lost.report(None, &mut salvage.report);
    let mut list: Vec<Entry> = entries.list.into_values().collect();
    let named: BTreeSet<u32> = list.iter().map(|entry| entry.collection.id).collect();
    let Some(index) = &salvage.index else {
        return Ok((list, outcome));
    };
    let is_unnamed = |owner: &u32| *owner != 0 && !named.contains(owner);
    // If the catalog is complete, only nodes written after it can belong to a collection it does
    // not list.
    let after = if is_whole { outcome.as_of } else { 0 };
    let unnamed: Vec<(u32, u64)> = index
        .owners()
        .filter(is_unnamed)
        .filter_map(|owner| Some((owner, salvage.used_nodes(owner).last()?.generation)))
        .filter(|(_, newest)| *newest > after)
        .collect();
    if !unnamed.is_empty() {
        add_unnamed(salvage, &unnamed, &mut list)?;
    }
    Ok((list, outcome))
}

/// The entries of readable catalog leaves, old ones included, for a name with a given id.
struct Seen {
    collection: Collection,
    /// Generation of the newest leaf with the entry.
    present: u64,
    /// Generation of the newest leaf that covers the name without the entry.
    absent: u64,
}

/// Adds the collections missing from `list`, except those that were dropped.
fn add_unnamed(salvage: &mut Salvage<'_>, unnamed: &[(u32, u64)], list: &mut Vec<Entry>) -> Flow<()> {
    let mut seen: BTreeMap<(Vec<u8>, u32), Seen> = BTreeMap::new();
    salvage.history(0, |range, generation, records| {
        for ((name, _), past) in seen.range_mut((range.lower.clone(), 0)..) {
            if !range.contains(name) {
                break;
            }
            past.absent = generation;
        }
        for (key, bytes) in records {
            let Ok(collection) = Collection::decode(bytes) else {
                continue;
            };
            let past = Seen {
                collection,
                present: generation,
                absent: 0,
            };
            seen.insert((key.clone(), past.collection.id), past);
        }
    })?;
    let by_id: BTreeMap<u32, (&Vec<u8>, &Seen)> = seen.iter().map(|((name, id), past)| (*id, (name, past))).collect();
    for (id, newest) in unnamed {
        let past = by_id.get(id);
        if past.is_some_and(|(_, past)| past.absent > past.present && past.absent >= *newest) {
            continue;
        }
        let lost = Collection::new(*id, 0);
        list.push(Entry {
            name: past.and_then(|(name, _)| String::from_utf8((*name).clone()).ok()),
            collection: past.map_or(lost, |(_, past)| Collection {
                root: None,
                ..past.collection.clone()
            }),
            as_of: 0,
        });
    }
    Ok(())
}
