//! Where a request reads: in a committed state, in uncommitted writes, or in a transaction of the
//! client.

use std::ops::Range;

use mangrove_engine::{
    Direction, Entry, ExclusiveTransaction, KeyRange, OptimisticTransaction, Result, SnapshotCollection, ValuePart,
};

use crate::protocol::Writer;
use crate::range;

/// A collection in one of these. A committed state may lack it.
pub(crate) enum Source<'a> {
    Committed(Option<&'a SnapshotCollection>),
    /// Lookups only.
    Uncommitted(&'a ExclusiveTransaction<'a>, &'a str),
    Transaction(&'a OptimisticTransaction, &'a str),
}

impl Source<'_> {
    /// Returns the transaction, if the source is one.
    pub(crate) fn transaction(&self) -> Option<&OptimisticTransaction> {
        match self {
            Self::Transaction(transaction, _) => Some(transaction),
            Self::Committed(_) | Self::Uncommitted(..) => None,
        }
    }

    /// Appends the value of a key; returns whether there is one.
    pub(crate) fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let value = match self {
            Self::Committed(tree) => return tree.map_or(Ok(false), |tree| tree.get_into(key, into)),
            Self::Uncommitted(transaction, name) => transaction.get(name, key)?,
            Self::Transaction(transaction, name) => transaction.get(name, key)?,
        };
        into.extend_from_slice(value.as_deref().unwrap_or_default());
        Ok(value.is_some())
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Committed(tree) => tree.map_or(Ok(false), |tree| tree.contains(key)),
            Self::Uncommitted(transaction, name) => Ok(transaction.get(name, key)?.is_some()),
            Self::Transaction(transaction, name) => Ok(transaction.get(name, key)?.is_some()),
        }
    }

    pub(crate) fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        match self {
            Self::Committed(tree) => tree.map_or(Ok(None), |tree| tree.entry(key)),
            Self::Uncommitted(transaction, name) => transaction.entry(name, key),
            Self::Transaction(transaction, name) => transaction.entry(name, key),
        }
    }

    pub(crate) fn get_range(&self, key: &[u8], range: Range<u64>) -> Result<Option<ValuePart>> {
        match self {
            Self::Committed(tree) => tree.map_or(Ok(None), |tree| tree.get_range(key, range)),
            Self::Uncommitted(transaction, name) => transaction.get_range(name, key, range),
            Self::Transaction(transaction, name) => transaction.get_range(name, key, range),
        }
    }

    pub(crate) fn count(&self, range: KeyRange<'_>) -> Result<u64> {
        match self {
            Self::Committed(Some(tree)) => range::count(tree, range),
            Self::Transaction(transaction, name) if !range::is_empty(&range) => transaction.count(name, range),
            _ => Ok(0),
        }
    }

    /// When the next record of a range expires, in a committed state.
    pub(crate) fn next_expiry(&self, range: &KeyRange<'_>) -> Result<Option<u64>> {
        match self {
            Self::Committed(Some(tree)) if !range::is_empty(range) => tree.next_expiry(range),
            _ => Ok(None),
        }
    }

    /// Writes the record at a position, or that there is none. O(log n) in committed states,
    /// O(position) in transactions.
    pub(crate) fn at(&self, range: KeyRange<'_>, from_end: bool, position: u64, out: &mut Writer) -> Result<()> {
        match self {
            Self::Committed(Some(tree)) if position > 0 => {
                let entry = match range::position(tree, &range, from_end, position)? {
                    Some(position) => tree.at(position)?,
                    None => None,
                };
                out.flag(entry.is_some());
                if let Some((key, value)) = entry {
                    out.bytes(&key);
                    out.bytes(&value);
                }
                return Ok(());
            }
            // The first and the last record are found without counting.
            Self::Committed(Some(tree)) if !range::is_empty(&range) => {
                let mut cursor = tree.cursor(range, direction(from_end));
                if cursor.advance()? {
                    out.flag(true);
                    out.bytes(cursor.key());
                    return out.bytes_with(|into| cursor.value_into(into));
                }
            }
            Self::Transaction(transaction, name) if !range::is_empty(&range) => {
                let mut cursor = transaction.cursor(name, range, direction(from_end));
                let mut left = position;
                while cursor.advance()? {
                    if left == 0 {
                        out.flag(true);
                        out.bytes(cursor.key());
                        out.bytes(&cursor.value()?);
                        return Ok(());
                    }
                    left -= 1;
                }
            }
            _ => {}
        }
        out.flag(false);
        Ok(())
    }
}

fn direction(from_end: bool) -> Direction {
    if from_end {
        Direction::Reverse
    } else {
        Direction::Forward
    }
}
