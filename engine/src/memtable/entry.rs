//! Entries of a memtable, with the presence of their key in the layers below, once looked up.

use std::ops::Bound;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::Result;
use crate::node::{LeafCell, ValuePlace};
use crate::range::Direction;

/// Whether the layers below an entry have a record with its key. That does not change while the
/// entry exists, since writes only go to the layers above them.
#[derive(Debug)]
pub(crate) struct Below(AtomicU8);

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

impl Below {
    /// Not looked up yet.
    pub(crate) fn unknown() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }

    pub(crate) fn known(is_present: bool) -> Self {
        Self(AtomicU8::new(if is_present { PRESENT } else { ABSENT }))
    }

    fn set(&self, is_present: bool) {
        self.0
            .store(if is_present { PRESENT } else { ABSENT }, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => None,
            known => Some(known == PRESENT),
        }
    }

    /// Returns the remembered answer; otherwise asks `look` and remembers the answer.
    pub(crate) fn resolve(&self, look: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if let Some(known) = self.get() {
            return Ok(known);
        }
        let found = look()?;
        self.set(found);
        Ok(found)
    }
}

impl Clone for Below {
    fn clone(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Ordering::Relaxed)))
    }
}

/// A place between two neighbouring keys: right before or right after `key`, whether there is such
/// an entry or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'k> {
    pub key: &'k [u8],
    pub after: bool,
}

impl<'k> Cut<'k> {
    /// Where a range with this bound starts in `direction`; `None` if it has no bound there.
    pub(super) fn new(bound: Bound<&'k [u8]>, direction: Direction) -> Option<Self> {
        let reverse = direction == Direction::Reverse;
        match bound {
            Bound::Included(key) => Some(Self { key, after: reverse }),
            Bound::Excluded(key) => Some(Self { key, after: !reverse }),
            Bound::Unbounded => None,
        }
    }
}

/// The newest change to a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'m> {
    pub key: &'m [u8],
    /// Payload of the leaf's cell; `None` if the record was removed.
    pub payload: Option<&'m [u8]>,
    pub below: &'m Below,
}

impl<'m> Entry<'m> {
    /// The payload, if the record's value is out of line.
    pub(crate) fn reference(&self) -> Option<&'m [u8]> {
        self.payload.filter(|payload| is_out_of_line(payload))
    }
}

pub(super) fn is_out_of_line(payload: &[u8]) -> bool {
    matches!(LeafCell::decode(payload).place, ValuePlace::OutOfLine(_))
}

/// An entry that was replaced.
#[derive(Debug)]
pub(crate) struct Former {
    /// Its payload, if the record's value was out of line.
    pub reference: Option<Vec<u8>>,
}

impl Former {
    pub(super) fn of(entry: Entry<'_>) -> Self {
        Self {
            reference: entry.reference().map(<[u8]>::to_vec),
        }
    }
}
