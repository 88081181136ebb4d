//! Changes that come in ascending order of their keys, which visit each leaf once.

use super::{Editor, read};
use crate::error::Result;
use crate::node::LeafCell;
use crate::node::split::Cell;
use crate::pages::Step;

/// The leaf that the last change went to (a finger, as in Guibas et al. 1977, that only moves forwards).
struct Finger {
    path: Vec<Step>,
    leaf: u64,
    /// Records that were added, less those that were removed, which the inner nodes do not count yet.
    added: i64,
}

impl Editor<'_> {
    /// Stores records with inline values, and removes those without a cell. The keys ascend without repetition; lengths were checked by the
    /// caller. Returns how many records were removed.
    pub(crate) fn change_ascending<'r>(
        &mut self,
        changes: impl Iterator<Item = (&'r [u8], Option<LeafCell<'r>>)>,
    ) -> Result<u64> {
        let mut payload = std::mem::take(&mut self.draft.payload);
        let mut finger = None;
        let mut removed = 0;
        for (key, cell) in changes {
            if finger.as_ref().is_some_and(|finger| self.is_behind(finger, key)) {
                self.lift(finger.take());
            }
            finger = match cell {
                Some(cell) => {
                    cell.encode_into(&mut payload);
                    self.put_at(finger, key, &payload)?
                }
                None => self.remove_at(finger, key, &mut removed)?,
            };
        }
        self.lift(finger);
        self.draft.payload = payload;
        Ok(removed)
    }

    fn put_at(&mut self, finger: Option<Finger>, key: &[u8], payload: &[u8]) -> Result<Option<Finger>> {
        let finger = match (finger, *self.root) {
            (Some(finger), _) => finger,
            (None, Some(root)) => {
                let (path, leaf) = self.own_path(root, key)?;
                let added = 0;
                Finger { path, leaf, added }
            }
            (None, None) => {
                self.plant(key, payload, false);
                return Ok(None);
            }
        };
        let Finger { path, leaf, added } = finger;
        let (index, found) = self.node(leaf).lower_bound(key);
        if found {
            let old = self.draft.get(leaf).expect("own_path adopted the leaf").clone();
            self.retire_value(&old.record(index))?;
        }
        let added = added + i64::from(!found);
        let node = self.draft.node_mut(leaf);
        let fits = if found {
            node.replace_payload(index, payload)
        } else {
            node.insert(index, key, payload)
        };
        if fits {
            return Ok(Some(Finger { path, leaf, added }));
        }
        self.update_counts(&path, added, false);
        let new = Cell {
            key: key.to_vec(),
            payload: payload.to_vec(),
        };
        self.split(&path, leaf, index, found, vec![new]);
        self.draft.path = path;
        Ok(None)
    }

    fn remove_at(&mut self, finger: Option<Finger>, key: &[u8], removed: &mut u64) -> Result<Option<Finger>> {
        let finger = match (finger, *self.root) {
            (Some(finger), _) => finger,
            (None, Some(root)) => {
                // Looking first keeps the removal of an absent key free of copies.
                if read::find(&self.pages(), Some(&root), self.owner, key)?.is_none() {
                    return Ok(None);
                }
                let (path, leaf) = self.own_path(root, key)?;
                let added = 0;
                Finger { path, leaf, added }
            }
            (None, None) => return Ok(None),
        };
        let leaf = self.draft.get(finger.leaf).expect("own_path adopted the leaf").clone();
        let (index, found) = leaf.lower_bound(key);
        if !found {
            return Ok(Some(finger));
        }
        *removed += 1;
        let freed = leaf.suffix(index).len() + leaf.payload(index).len();
        if leaf.len() == 1 || leaf.used_bytes() < freed + self.limits.node_capacity / 4 {
            // It has to be merged, or goes away.
            drop(leaf);
            self.lift(Some(finger));
            self.delete(key)?;
            return Ok(None);
        }
        self.retire_value(&leaf.record(index))?;
        drop(leaf);
        self.draft.node_mut(finger.leaf).remove(index);
        let added = finger.added - 1;
        Ok(Some(Finger { added, ..finger }))
    }

    /// Whether a key belongs behind the finger's leaf.
    fn is_behind(&self, finger: &Finger, key: &[u8]) -> bool {
        self.node(finger.leaf).upper_fence().is_some_and(|upper| key >= upper)
    }

    fn lift(&mut self, finger: Option<Finger>) {
        if let Some(Finger { path, added, .. }) = finger {
            self.update_counts(&path, added, false);
            self.draft.path = path;
        }
    }
}
