//! Damage to indexes, for tests of what finds it.

use crate::error::{Error, Result};
use crate::state::IndexKeys;
use crate::state::index::{entry_key, index_of};
use crate::transaction::ExclusiveTransaction;
use crate::transaction::indexed::Entries;

/// What is wrong with an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexDamage {
    /// A record is missing in it.
    MissingEntry,
    /// It has a record under another index key as well.
    ExtraEntry,
    /// A record's index keys are missing.
    MissingKeys,
    /// A record that does not exist has index keys.
    ExtraKeys,
    /// An entry expires, and its record does not.
    WrongExpiry,
}

impl IndexDamage {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::MissingEntry,
        Self::ExtraEntry,
        Self::MissingKeys,
        Self::ExtraKeys,
        Self::WrongExpiry,
    ];
}

/// Damages the first index of a collection at its first record.
pub fn damage_index(transaction: &mut ExclusiveTransaction<'_>, collection: &str, damage: IndexDamage) -> Result<()> {
    let (id, index, key) = transaction.first_indexed(collection)?.ok_or_else(|| Error::NotFound {
        what: "a record with index keys".into(),
    })?;
    let index = index.id;
    let stored = transaction.stored_keys(collection, id, &key)?;
    let (mut keys, mut expires) = (IndexKeys::new(), 0);
    if let Some(stored) = stored {
        expires = stored.expires;
        for bytes in [&stored.own, &stored.apart] {
            keys.merge(IndexKeys::decode(bytes).unwrap_or_default());
        }
    }
    let entry = entry_key(&keys.get(index)[0], &key);
    match damage {
        IndexDamage::MissingEntry => transaction.remove_entry(&index_of(index), &entry),
        IndexDamage::ExtraEntry => transaction.put_entry(&index_of(index), &entry_key(b"extra", &key), expires),
        IndexDamage::MissingKeys => transaction.lose_keys(collection, id, &key),
        IndexDamage::ExtraKeys => transaction.keep_apart(id, b"extra", &keys),
        IndexDamage::WrongExpiry => transaction.put_entry(&index_of(index), &entry, u64::MAX),
    }
}
