//! Transactions that a client has open from message to message.

use mangrove_engine::{Error, Isolation, ReadWrite, Result, Savepoint, Transaction};

use super::{Codecs, Lost, Slot, Source, State, compare, missing};
use crate::protocol::{BatchOp, Reader, Writer, op};
use crate::range;
use crate::session::Writes;
use crate::table::MAX_OPEN;

/// A transaction with its savepoints.
pub(super) struct Open {
    pub(super) transaction: Transaction,
    savepoints: Vec<Savepoint>,
    /// Slots that are known to have the codecs that the transaction sees.
    checked: Vec<bool>,
}

impl Open {
    /// Fails where the collection holds other codecs than the slot's; stores the slot's if it holds none and is to be written.
    fn prepare(&mut self, index: usize, slot: &Slot, writes: bool) -> Result<()> {
        if self.checked.get(index).copied().unwrap_or_default() {
            return Ok(());
        }
        let stored = self.transaction.codecs(&slot.name);
        let stored = stored.filter(|(key_codec, value_codec)| !(key_codec.is_empty() && value_codec.is_empty()));
        match stored {
            Some((key_codec, value_codec)) => {
                if let Codecs::Mismatch(error) = compare(slot, &key_codec, &value_codec) {
                    return Err(error);
                }
            }
            None if writes => {
                self.transaction
                    .set_codecs(&slot.name, &slot.key_codec, &slot.value_codec)?;
            }
            None => return Ok(()),
        }
        if self.checked.len() <= index {
            self.checked.resize(index + 1, false);
        }
        self.checked[index] = true;
        Ok(())
    }

    fn set(&mut self, name: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<()> {
        match expires_at {
            None => self.transaction.put(name, key, value),
            expires_at => self.transaction.set_until(name, key, value, expires_at).map(|_| ()),
        }
    }
}

impl State {
    pub(super) fn transaction_open(
        &mut self,
        writes: &Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (id, is_snapshot) = (reader.uv()?, reader.flag()?);
        writes.client.check_writable()?;
        if id == 0 {
            return Err(reader.malformed());
        }
        let isolation = if is_snapshot {
            Isolation::Snapshot
        } else {
            Isolation::Serializable
        };
        self.transactions.check_room(
            MAX_OPEN,
            "open transactions; commit or roll back those that are done with",
        )?;
        let transaction = writes.database.transaction(isolation)?;
        out.uv(transaction.version());
        self.transactions.insert(
            id,
            Open {
                transaction,
                savepoints: Vec::new(),
                checked: Vec::new(),
            },
        );
        Ok(())
    }

    pub(super) fn transaction_commit(
        &mut self,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (id, durability) = (reader.uv()?, reader.durability()?);
        let open = self
            .transactions
            .take(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
        // Else the commit would have to keep what it replaces.
        self.forget_current();
        let info = writes.commit_other(durability, open.transaction, reader.left())?;
        // Collections may have come and gone.
        self.undo();
        out.uv(info.version);
        Ok(())
    }

    pub(super) fn transaction_close(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let id = reader.uv()?;
        self.transactions.take(id);
        self.lost.table.remove(id);
        Ok(())
    }

    pub(super) fn savepoint(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let id = reader.uv()?;
        let open = self
            .transactions
            .get_mut(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
        out.uv(open.savepoints.len() as u64);
        open.savepoints.push(open.transaction.savepoint());
        Ok(())
    }

    /// Goes back to a savepoint, which stays, and forgets those after it.
    pub(super) fn rollback_to(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let (id, number) = (reader.uv()?, reader.uv()?);
        let open = self
            .transactions
            .get_mut(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(savepoint) = open.savepoints.get(number) else {
            return Err(Error::InvalidArgument {
                what: "the transaction has no such savepoint any more".to_owned(),
            });
        };
        open.transaction.rollback_to(savepoint);
        open.savepoints.truncate(number + 1);
        open.checked.clear();
        Ok(())
    }

    pub(super) fn source_within(&mut self, id: u64, index: usize) -> Result<Source<'_>> {
        let slot = &self.slots[index];
        let open = self
            .transactions
            .get_mut(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
        open.prepare(index, slot, false)?;
        Ok(Source::Transaction(&open.transaction, &slot.name))
    }

    /// Executes a write in a transaction; the reply is that of the same write to the database, with 0 for the version.
    pub(super) fn write_within(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, code) = (reader.uv()?, reader.u8()?);
        reader.durability()?;
        out.uv(0);
        match code {
            op::SET => {
                let (collection, key, value) = (reader.uv()?, reader.bytes()?, reader.bytes()?);
                let (open, slot) = self.within(id, collection)?;
                open.set(&slot.name, key, value, None)
            }
            op::DELETE => {
                let (collection, key) = (reader.uv()?, reader.bytes()?);
                let (open, slot) = self.within(id, collection)?;
                out.flag(open.transaction.delete(&slot.name, key)?);
                Ok(())
            }
            op::CLEAR => {
                let (collection, range) = (reader.uv()?, reader.range()?);
                let (open, slot) = self.within(id, collection)?;
                out.uv(0);
                if range::is_empty(&range) {
                    return Ok(());
                }
                open.transaction.clear(&slot.name, range)
            }
            op::BATCH => {
                let (count, changes) = reader.batch()?;
                let open = self
                    .transactions
                    .get_mut(id)
                    .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
                let before = open.transaction.savepoint();
                match self.batch_within(id, count, changes) {
                    Ok(existed) => {
                        out.uv(existed);
                        Ok(())
                    }
                    Err(error) => {
                        let open = self
                            .transactions
                            .get_mut(id)
                            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
                        open.transaction.rollback_to(&before);
                        open.checked.clear();
                        Err(error)
                    }
                }
            }
            op::GET_OR_INSERT => {
                let (collection, key, value) = (reader.uv()?, reader.bytes()?, reader.bytes()?);
                let expires_at = reader.expiry()?;
                let (open, slot) = self.within(id, collection)?;
                let found = open.transaction.get(&slot.name, key)?;
                out.flag(found.is_some());
                match found {
                    Some(found) => out.bytes(&found),
                    None => open.set(&slot.name, key, value, expires_at)?,
                }
                Ok(())
            }
            op::DROP | op::RENAME => {
                let name = reader.str()?;
                let to = if code == op::RENAME { Some(reader.str()?) } else { None };
                let open = self
                    .transactions
                    .get_mut(id)
                    .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
                out.flag(match to {
                    Some(to) => open.transaction.rename_collection(name, to)?,
                    None => open.transaction.drop_collection(name)?,
                });
                open.checked.clear();
                Ok(())
            }
            _ => Err(reader.malformed()),
        }
    }

    fn within(&mut self, id: u64, collection: u64) -> Result<(&mut Open, &Slot)> {
        let index = self.slot_index(collection)?;
        let slot = &self.slots[index];
        let open = self
            .transactions
            .get_mut(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
        open.prepare(index, slot, true)?;
        Ok((open, slot))
    }

    /// Gives how many of the keys that it deletes were there.
    fn batch_within(&mut self, id: u64, count: usize, mut changes: Reader<'_>) -> Result<u64> {
        let mut existed = 0;
        for _ in 0..count {
            match changes.batch_op()? {
                BatchOp::Set {
                    collection,
                    key,
                    value,
                    expires_at,
                } => {
                    let (open, slot) = self.within(id, collection)?;
                    open.set(&slot.name, key, value, expires_at)?;
                }
                BatchOp::Delete { collection, key } => {
                    let (open, slot) = self.within(id, collection)?;
                    existed += u64::from(open.transaction.delete(&slot.name, key)?);
                }
                BatchOp::Check {
                    collection,
                    key,
                    version,
                } => {
                    let (open, slot) = self.within(id, collection)?;
                    let found = open.transaction.entry(&slot.name, key)?;
                    super::writes::check(version, found, &slot.name, key)?;
                }
            }
        }
        Ok(existed)
    }
}
