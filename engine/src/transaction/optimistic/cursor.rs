//! Ranges inside an optimistic transaction: the snapshot's records merged with the transaction's own writes.

use std::ops::Bound;

use super::{OwnedRange, Transaction, Write};
use crate::database::{Cursor, Tree};
use crate::error::Result;
use crate::index::OrderedIndex;
use crate::tree::{Direction, KeyRange};

/// Where the current record comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Nowhere,
    Base,
    Own,
}

/// Moves over a range as the transaction sees it.
pub struct TransactionCursor<'t, I: OrderedIndex<Write>> {
    transaction: &'t Transaction<I>,
    collection: String,
    range: OwnedRange,
    direction: Direction,
    base: Option<(Tree, Cursor)>,
    /// The base's cursor stands on a record that was not returned yet.
    base_is_ahead: bool,
    /// Stored key of the current record.
    key: Vec<u8>,
    /// Its key, if there is an order to turn it back from.
    turned: Vec<u8>,
    source: Source,
    is_done: bool,
}

impl<'t, I: OrderedIndex<Write>> TransactionCursor<'t, I> {
    pub(super) fn new(
        transaction: &'t Transaction<I>,
        collection: &str,
        range: &KeyRange<'_>,
        direction: Direction,
    ) -> Self {
        let (_, base) = transaction.view(collection);
        let base = base.map(|tree| {
            let cursor = tree.cursor_stored(range, direction);
            (tree, cursor)
        });
        Self {
            transaction,
            collection: collection.to_owned(),
            range: OwnedRange::new(range),
            direction,
            base,
            base_is_ahead: false,
            key: Vec::new(),
            turned: Vec::new(),
            source: Source::Nowhere,
            is_done: false,
        }
    }

    /// Key of the current record.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        if self.transaction.order().is_none() {
            &self.key
        } else {
            &self.turned
        }
    }

    /// Value of the current record; empty if there is none.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn value(&self) -> Result<Vec<u8>> {
        match (self.source, &self.base) {
            (Source::Base, Some((_, cursor))) => cursor.value(),
            (Source::Own, _) => {
                let overlay = self.transaction.overlays.get(&self.collection);
                let write = overlay.and_then(|overlay| overlay.writes.get(&self.key));
                Ok(write
                    .and_then(|Write(record)| record.as_ref())
                    .map_or_else(Vec::new, |record| record.value.to_vec()))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Goes to the next record; `false` at the end of the range.
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn advance(&mut self) -> Result<bool> {
        if self.is_done {
            return Ok(false);
        }
        let advanced = self.step()?;
        self.note(advanced);
        self.is_done = !advanced;
        if advanced && !self.transaction.order().is_none() {
            self.transaction.order().key_into(&self.key, &mut self.turned);
        }
        Ok(advanced)
    }

    /// The part of the range between its beginning and the current record, or all of it, was read.
    fn note(&self, advanced: bool) {
        let Some((tree, _)) = &self.base else { return };
        let whole = self.range.borrow();
        let here = Bound::Included(self.key.as_slice());
        let range = match (advanced, self.direction) {
            (false, _) => whole,
            (true, Direction::Forward) => KeyRange { upper: here, ..whole },
            (true, Direction::Reverse) => KeyRange { lower: here, ..whole },
        };
        self.transaction
            .note(tree, |footprint| footprint.extend_range(&range, self.direction));
    }

    fn step(&mut self) -> Result<bool> {
        let overlay = self.transaction.overlays.get(&self.collection);
        loop {
            if !self.base_is_ahead
                && let Some((_, cursor)) = &mut self.base
            {
                self.base_is_ahead = cursor.advance()?;
                if !self.base_is_ahead {
                    self.base_is_finished();
                    continue;
                }
            }
            let base_key = self
                .base
                .as_ref()
                .filter(|_| self.base_is_ahead)
                .map(|(_, cursor)| cursor.key());
            let own = overlay.and_then(|overlay| {
                let after = match self.source {
                    Source::Nowhere => None,
                    _ => Some(Bound::Excluded(self.key.as_slice())),
                };
                let range = self.range.borrow();
                let (start, end) = match self.direction {
                    Direction::Forward => (range.lower, range.upper),
                    Direction::Reverse => (range.upper, range.lower),
                };
                let (key, write) = overlay.writes.seek(after.unwrap_or(start), self.direction)?;
                let inside = match self.direction {
                    Direction::Forward => KeyRange {
                        lower: Bound::Unbounded,
                        upper: end,
                    },
                    Direction::Reverse => KeyRange {
                        lower: end,
                        upper: Bound::Unbounded,
                    },
                };
                OwnedRange::new(&inside).contains(key).then_some((key, write))
            });
            let own_first = match (own, base_key) {
                (None, None) => return Ok(false),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((own, _)), Some(base)) => match self.direction {
                    Direction::Forward => own <= base,
                    Direction::Reverse => own >= base,
                },
            };
            if own_first && let Some((key, Write(write))) = own {
                if base_key == Some(key) {
                    self.base_is_ahead = false;
                }
                self.key.clear();
                self.key.extend_from_slice(key);
                self.source = Source::Own;
                if write.is_some() {
                    return Ok(true);
                }
                continue;
            }
            let Some(key) = base_key else { return Ok(false) };
            self.key.clear();
            self.key.extend_from_slice(key);
            self.source = Source::Base;
            self.base_is_ahead = false;
            if overlay.is_none_or(|overlay| !overlay.is_cleared(&self.key)) {
                return Ok(true);
            }
        }
    }

    fn base_is_finished(&mut self) {
        // The tree is still needed for what was read.
        if let Some((tree, _)) = self.base.take() {
            self.finished_base(&tree);
        }
    }

    fn finished_base(&mut self, tree: &Tree) {
        let whole = self.range.borrow();
        self.transaction
            .note(tree, |footprint| footprint.extend_range(&whole, self.direction));
    }
}
