//! Transactions that a client keeps open across messages.

use mangrove_engine::{Durability, Error, Isolation, OptimisticTransaction, Result, Savepoint};

use super::{Codecs, Lost, Slot, State, check_id, compare, missing};
use crate::pending::Writes;
use crate::protocol::Writer;
use crate::source::Source;
use crate::table::MAX_OPEN;

/// A transaction with its savepoints.
pub(super) struct Open {
    pub(super) transaction: OptimisticTransaction,
    savepoints: Vec<Savepoint>,
    /// By slot: whether its codecs are known to match what the transaction sees.
    checked: Vec<bool>,
    /// It may change more than records.
    pub(super) is_structural: bool,
}

impl Open {
    /// Fails if the collection has other codecs than the slot. Stores the slot's if it has none and
    /// `writes` is set.
    pub(super) fn prepare(&mut self, index: usize, slot: &Slot, writes: bool) -> Result<()> {
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
                self.is_structural = true;
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

    /// Forgets checked codecs, because others may be stored now.
    pub(super) fn forget_codecs(&mut self) {
        self.checked.clear();
    }
}

impl State {
    pub(super) fn transaction_open(
        &mut self,
        id: u64,
        is_snapshot: bool,
        writes: &Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        writes.client.check_writable()?;
        check_id(id)?;
        let isolation = if is_snapshot {
            Isolation::Snapshot
        } else {
            Isolation::Serializable
        };
        self.transactions.check_room(
            MAX_OPEN,
            "open transactions; commit or roll back those that are no longer used",
        )?;
        let transaction = writes.database.transaction(isolation)?;
        out.uv(transaction.version());
        self.transactions.insert(
            id,
            Open {
                transaction,
                savepoints: Vec::new(),
                checked: Vec::new(),
                is_structural: false,
            },
        );
        Ok(())
    }

    pub(super) fn transaction_commit(
        &mut self,
        id: u64,
        durability: Durability,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let open = self
            .transactions
            .take(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
        // While the state is held, the commit has to keep what it replaces.
        self.forget_current();
        let info = writes.commit_other(durability, open.transaction, None)?;
        // Collections may have been created or dropped.
        self.undo();
        out.uv(info.version);
        Ok(())
    }

    pub(super) fn transaction_close(&mut self, id: u64) {
        self.transactions.take(id);
        self.lost.table.remove(id);
    }

    pub(super) fn savepoint(&mut self, id: u64, out: &mut Writer) -> Result<()> {
        let open = self.open_transaction(id)?;
        out.uv(open.savepoints.len() as u64);
        open.savepoints.push(open.transaction.savepoint());
        Ok(())
    }

    /// Returns to a savepoint, which remains, and drops those after it.
    pub(super) fn rollback_to(&mut self, id: u64, number: u64) -> Result<()> {
        let open = self.open_transaction(id)?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(savepoint) = open.savepoints.get(number) else {
            return Err(Error::InvalidArgument {
                what: "the transaction has no such savepoint any more".into(),
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

    pub(super) fn open_transaction(&mut self, id: u64) -> Result<&mut Open> {
        self.transactions
            .get_mut(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))
    }
}
