//! Commits of the database itself.

use mangrove_engine::{ConflictReason, Durability, Entry, Error, Result, WriteTransaction};

use super::{Codecs, Slot, State, compare};
use crate::protocol::{BatchOp, Reader, View, Writer};
use crate::range;
use crate::session::Writes;

impl State {
    /// Makes ready for a write; tells whether the collection's codecs have to be stored with it.
    pub(super) fn prepare(&mut self, writes: &Writes<'_>, index: u64) -> Result<(usize, bool)> {
        let index = self.slot_index(index)?;
        self.check(writes.database, index)?;
        Ok((index, !matches!(self.slots[index].codecs, Codecs::Stored)))
    }

    /// As [`prepare`](Self::prepare), for a record that is stored: once it is checked, only the storage can fail.
    fn prepare_record(
        &mut self,
        writes: &Writes<'_>,
        index: u64,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
    ) -> Result<(usize, bool)> {
        let (index, is_fresh) = self.prepare(writes, index)?;
        let name = &self.slots[index].name;
        writes.database.check_record(name, key, value.len(), expires_at)?;
        Ok((index, is_fresh))
    }

    /// Runs one atomic commit and appends its version. `fresh` are the slots whose codecs it stores. Gives what `work` counted.
    pub(super) fn commit(
        &mut self,
        writes: &mut Writes<'_>,
        durability: Durability,
        fresh: &[usize],
        out: &mut Writer,
        // Not generic: there would be one copy of this for each kind of write.
        work: &mut dyn FnMut(&[Slot], &mut WriteTransaction<'_>) -> Result<u64>,
    ) -> Result<u64> {
        let slots = &self.slots;
        let (info, result) = writes.commit(durability, |transaction| {
            for &index in fresh {
                let slot = &slots[index];
                transaction.set_codecs(&slot.name, &slot.key_codec, &slot.value_codec)?;
            }
            work(slots, transaction)
        })?;
        for &index in fresh {
            let Slot {
                name,
                key_codec,
                value_codec,
                ..
            } = &self.slots[index];
            let (name, key_codec, value_codec) = (name.clone(), key_codec.clone(), value_codec.clone());
            for slot in self.slots.iter_mut().filter(|slot| slot.name == name) {
                slot.codecs = compare(slot, &key_codec, &value_codec);
            }
        }
        out.uv(info.version);
        Ok(result)
    }

    pub(super) fn set(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (durability, collection) = (reader.durability()?, reader.uv()?);
        let (key, value) = (reader.bytes()?, reader.bytes()?);
        let (index, is_fresh) = self.prepare_record(writes, collection, key, value, None)?;
        let fresh: &[usize] = if is_fresh { &[index] } else { &[] };
        self.commit(writes, durability, fresh, out, &mut |slots, transaction| {
            transaction.put(&slots[index].name, key, value).map(|()| 0)
        })?;
        Ok(())
    }

    pub(super) fn delete(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (durability, collection, key) = (reader.durability()?, reader.uv()?, reader.bytes()?);
        let (index, _) = self.prepare(writes, collection)?;
        let existed = self.commit(writes, durability, &[], out, &mut |slots, transaction| {
            transaction.delete(&slots[index].name, key).map(u64::from)
        })?;
        out.flag(existed > 0);
        Ok(())
    }

    pub(super) fn clear(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (durability, collection, range) = (reader.durability()?, reader.uv()?, reader.range()?);
        let (index, _) = self.prepare(writes, collection)?;
        let removed = self.commit(writes, durability, &[], out, &mut |slots, transaction| {
            if range::is_empty(&range) {
                return Ok(0);
            }
            transaction.clear(&slots[index].name, range)
        })?;
        out.uv(removed);
        Ok(())
    }

    pub(super) fn batch(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let durability = reader.durability()?;
        let (count, mut changes) = reader.batch()?;
        let mut fresh = Vec::new();
        let mut ahead = changes;
        for _ in 0..count {
            match ahead.batch_op()? {
                BatchOp::Set {
                    collection,
                    key,
                    value,
                    expires_at,
                } => {
                    let (index, is_fresh) = self.prepare_record(writes, collection, key, value, expires_at)?;
                    if is_fresh && !fresh.contains(&index) {
                        fresh.push(index);
                    }
                }
                BatchOp::Delete { collection, .. } => {
                    self.prepare(writes, collection)?;
                }
                BatchOp::Check {
                    collection,
                    key,
                    version,
                } => {
                    // Before anything is changed, the order within the batch does not matter.
                    let source = self.newest_source(writes, View::Current, collection)?;
                    let entry = source.entry(key)?;
                    let name = &self.slots[to_index(collection)].name;
                    check(version, entry, name, key)?;
                }
            }
        }
        let existed = self.commit(writes, durability, &fresh, out, &mut |slots, transaction| {
            let mut existed = 0;
            for _ in 0..count {
                match changes.batch_op()? {
                    BatchOp::Set {
                        collection,
                        key,
                        value,
                        expires_at,
                    } => {
                        transaction.put_until(&slots[to_index(collection)].name, key, value, expires_at)?;
                    }
                    BatchOp::Delete { collection, key } => {
                        existed += u64::from(transaction.delete(&slots[to_index(collection)].name, key)?);
                    }
                    BatchOp::Check { .. } => {}
                }
            }
            Ok(existed)
        })?;
        out.uv(existed);
        Ok(())
    }

    pub(super) fn get_or_insert(
        &mut self,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (durability, collection) = (reader.durability()?, reader.uv()?);
        let (key, value, expires_at) = (reader.bytes()?, reader.bytes()?, reader.expiry()?);
        let (index, is_fresh) = self.prepare_record(writes, collection, key, value, expires_at)?;
        let found = self.newest_source(writes, View::Current, collection)?.entry(key)?;
        if let Some(found) = found {
            out.uv(found.version);
            out.flag(true);
            out.bytes(&found.value);
            return Ok(());
        }
        let fresh: &[usize] = if is_fresh { &[index] } else { &[] };
        self.commit(writes, durability, fresh, out, &mut |slots, transaction| {
            let name = &slots[index].name;
            transaction.put_until(name, key, value, expires_at).map(|()| 0)
        })?;
        out.flag(false);
        Ok(())
    }

    /// Drops a collection, or gives it another name.
    pub(super) fn move_collection(
        &mut self,
        renames: bool,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (durability, name) = (reader.durability()?, reader.str()?);
        let to = if renames { reader.str()? } else { name };
        let mut moved = None;
        let existed = self.commit(writes, durability, &[], out, &mut |_, transaction| {
            let existed = if renames {
                transaction.rename_collection(name, to)?
            } else {
                transaction.drop_collection(name)?
            };
            moved = transaction.codecs(to).filter(|_| existed);
            Ok(u64::from(existed))
        })?;
        if existed > 0 {
            for slot in &mut self.slots {
                slot.codecs = match &moved {
                    Some((key_codec, value_codec)) if slot.name == to => compare(slot, key_codec, value_codec),
                    _ if slot.name == name => Codecs::Absent,
                    _ => continue,
                };
            }
        }
        out.flag(existed > 0);
        Ok(())
    }
}

/// For an index that was found to be a slot's.
#[allow(
    clippy::cast_possible_truncation,
    reason = "it was compared with the number of slots"
)]
fn to_index(collection: u64) -> usize {
    collection as usize
}

/// Fails unless the record is of this version, or, with `None`, absent.
pub(super) fn check(version: Option<u64>, found: Option<Entry>, collection: &str, key: &[u8]) -> Result<()> {
    let found = found.map(|entry| entry.version);
    if found == version {
        return Ok(());
    }
    let reason = ConflictReason::Version {
        expected: version,
        found,
    };
    Err(Error::conflict(Some(collection), Some(key), reason))
}
