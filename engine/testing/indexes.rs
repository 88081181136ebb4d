//! Damage to indexes, for tests of what finds it.

use crate::error::{Error, Result};
use crate::state::index::{entry_key, index_keys_of, index_of};
use crate::state::{Index, IndexKeys};
use crate::transaction::WriteTransaction;
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
pub fn damage_index(transaction: &mut WriteTransaction<'_>, collection: &str, damage: IndexDamage) -> Result<()> {
    let (id, index, key) = transaction.first_indexed(collection)?.ok_or_else(|| Error::NotFound {
        what: "a record with index keys".into(),
    })?;
    let Index { id: index, .. } = index;
    let keys_name = index_keys_of(id);
    let (bytes, expires) = transaction.stored(&keys_name, &key)?.unwrap_or_default();
    let keys = IndexKeys::decode(&bytes).unwrap_or_default();
    let entry = entry_key(&keys.get(index)[0], &key);
    match damage {
        IndexDamage::MissingEntry => transaction.remove_entry(&index_of(index), &entry),
        IndexDamage::ExtraEntry => transaction.put_entry(&index_of(index), &entry_key(b"extra", &key), &[], expires),
        IndexDamage::MissingKeys => transaction.remove_entry(&keys_name, &key),
        IndexDamage::ExtraKeys => transaction.put_entry(&keys_name, b"extra", &bytes, expires),
        IndexDamage::WrongExpiry => transaction.put_entry(&index_of(index), &entry, &[], u64::MAX),
    }
}
