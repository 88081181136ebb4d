//! Insertion of records that come in ascending order, which visits each leaf once.

use super::Editor;
use super::editor::Step;
use crate::error::Result;
use crate::node::LeafCell;
use crate::node::split::Cell;

/// The leaf that the last record went to (a finger search tree's finger, Guibas et al. 1977, held only forwards).
struct Finger {
    path: Vec<Step>,
    leaf: u64,
    /// Records that were added and that the inner nodes do not count yet.
    added: i64,
}

impl Editor<'_> {
    /// Stores records with inline values, whose keys ascend without repetition. Lengths were checked by the caller.
    pub(crate) fn put_ascending<'r>(&mut self, records: impl Iterator<Item = (&'r [u8], LeafCell<'r>)>) -> Result<()> {
        let mut payload = std::mem::take(&mut self.draft.payload);
        let mut finger = None;
        for (key, cell) in records {
            cell.encode_into(&mut payload);
            if finger.as_ref().is_some_and(|finger| self.is_behind(finger, key)) {
                self.lift(finger.take());
            }
            let Finger { path, leaf, added } = match finger.take() {
                Some(finger) => finger,
                None => {
                    let Some(root) = *self.root else {
                        self.plant(key, &payload, false);
                        continue;
                    };
                    let (path, leaf) = self.own_path(root, key)?;
                    let added = 0;
                    Finger { path, leaf, added }
                }
            };
            let (index, found) = self.node(leaf).lower_bound(key);
            if found {
                let old = self.draft.get(leaf).expect("own_path adopted the leaf").clone();
                self.retire_value(&old.record(index))?;
            }
            let added = added + i64::from(!found);
            let node = self.draft.node_mut(leaf);
            let fits = if found {
                node.replace_payload(index, &payload)
            } else {
                node.insert(index, key, &payload)
            };
            if fits {
                finger = Some(Finger { path, leaf, added });
                continue;
            }
            self.update_counts(&path, added, false);
            let new = Cell {
                key: key.to_vec(),
                payload: payload.clone(),
            };
            self.split(&path, leaf, index, found, vec![new]);
            self.draft.path = path;
        }
        self.lift(finger);
        self.draft.payload = payload;
        Ok(())
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
