//! Writes, to the newest state or within a transaction of the client.

use mangrove_engine::{
    ConflictReason, Database, Durability, Entry, Error, ExclusiveTransaction, KeyRange, OptimisticTransaction, Result,
};

use super::{Codecs, Lost, Slot, State, compare, indexes, missing};
use crate::pending::Writes;
use crate::protocol::{BatchOp, View, Writer};
use crate::range;
use crate::request::{Request, Write};

/// A record to store.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) collection: u64,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) expires_at: Option<u64>,
}

/// What can be written to. [`apply`] takes it as an object: a generic function would be in the module
/// twice.
trait Target {
    fn put(&mut self, name: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<()>;
    fn put_indexed(&mut self, slot: &Slot, record: Record<'_>, index_keys: &[u8]) -> Result<()>;
    fn delete(&mut self, name: &str, key: &[u8]) -> Result<bool>;
    /// Returns how many records were removed; 0 in a transaction, where that is not known.
    fn clear(&mut self, name: &str, range: KeyRange<'_>) -> Result<u64>;
    fn drop_collection(&mut self, name: &str) -> Result<bool>;
    fn rename_collection(&mut self, name: &str, to: &str) -> Result<bool>;
}

/// Implements [`Target`] by the methods of a transaction of the engine. `$removed` makes the count of
/// what its `clear` returns.
macro_rules! target {
    ($transaction:ty, $put_indexed:path, $removed:expr) => {
        impl Target for $transaction {
            fn put(&mut self, name: &str, key: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<()> {
                self.put_until(name, key, value, expires_at)
            }

            fn put_indexed(&mut self, slot: &Slot, record: Record<'_>, index_keys: &[u8]) -> Result<()> {
                $put_indexed(self, slot, record, index_keys)
            }

            fn delete(&mut self, name: &str, key: &[u8]) -> Result<bool> {
                Self::delete(self, name, key)
            }

            fn clear(&mut self, name: &str, range: KeyRange<'_>) -> Result<u64> {
                Self::clear(self, name, range).map($removed)
            }

            fn drop_collection(&mut self, name: &str) -> Result<bool> {
                Self::drop_collection(self, name)
            }

            fn rename_collection(&mut self, name: &str, to: &str) -> Result<bool> {
                Self::rename_collection(self, name, to)
            }
        }
    };
}

target!(ExclusiveTransaction<'_>, indexes::put_in_group, std::convert::identity);
target!(OptimisticTransaction, indexes::put_in_transaction, |()| 0);

/// Makes the changes of a write that was checked. Returns what follows the version in its reply, a
/// number or a flag; nothing follows a `Set`.
fn apply(write: &Write<'_>, slots: &[Slot], target: &mut dyn Target) -> Result<u64> {
    let name = |collection: u64| slots[to_index(collection)].name.as_str();
    Ok(match *write {
        Write::Set {
            collection, key, value, ..
        } => {
            target.put(name(collection), key, value, None)?;
            0
        }
        Write::GetOrInsert {
            collection,
            key,
            value,
            expires_at,
            ..
        } => {
            target.put(name(collection), key, value, expires_at)?;
            0
        }
        Write::Delete { collection, key, .. } => u64::from(target.delete(name(collection), key)?),
        Write::Clear { collection, range, .. } if !range::is_empty(&range) => target.clear(name(collection), range)?,
        Write::Clear { .. } => 0,
        Write::Batch { changes, .. } => {
            let mut existed = 0;
            for change in changes.iter() {
                match change? {
                    BatchOp::Set {
                        collection,
                        key,
                        value,
                        expires_at,
                    } => target.put(name(collection), key, value, expires_at)?,
                    BatchOp::SetIndexed {
                        collection,
                        key,
                        value,
                        expires_at,
                        index_keys,
                    } => {
                        let record = Record {
                            collection,
                            key,
                            value,
                            expires_at,
                        };
                        target.put_indexed(&slots[to_index(collection)], record, index_keys)?;
                    }
                    BatchOp::Delete { collection, key } => {
                        existed += u64::from(target.delete(name(collection), key)?);
                    }
                    BatchOp::Check { .. } => {}
                }
            }
            existed
        }
        Write::Drop { name, .. } => u64::from(target.drop_collection(name)?),
        Write::Rename { name, to, .. } => u64::from(target.rename_collection(name, to)?),
    })
}

impl State {
    /// Commits a write. Consecutive writes become durable together.
    pub(super) fn write(&mut self, write: &Write<'_>, writes: &mut Writes<'_>, out: &mut Writer) -> Result<()> {
        if self.is_apart(write) {
            return self.write_apart(write, writes, out);
        }
        let mut fresh = Vec::new();
        if self.prepare(None, write, writes, &mut fresh, out)? {
            return Ok(());
        }
        let slots = &self.slots;
        let mut moved = None;
        let (info, result) = writes.commit(durability(write), |transaction| {
            for &index in &fresh {
                let slot: &Slot = &slots[index];
                transaction.set_codecs(&slot.name, &slot.key_codec, &slot.value_codec)?;
            }
            let result = apply(write, slots, transaction)?;
            if let Write::Drop { name: to, .. } | Write::Rename { to, .. } = write {
                moved = transaction.codecs(to).filter(|_| result > 0);
            }
            Ok(result)
        })?;
        for index in fresh {
            self.now_has_codecs_of(index);
        }
        if result > 0
            && let Write::Drop { name, .. } | Write::Rename { name, .. } = *write
        {
            let to = if let Write::Rename { to, .. } = *write {
                to
            } else {
                name
            };
            for slot in &mut self.slots {
                slot.codecs = match &moved {
                    Some((key_codec, value_codec)) if slot.name == to => compare(slot, key_codec, value_codec),
                    _ if slot.name == name => Codecs::Absent,
                    _ => continue,
                };
            }
        }
        reply(write, info.version, result, out);
        Ok(())
    }

    /// Whether a write runs in a separate transaction outside any group: a batch that may fail
    /// after some of its changes, because a key of a unique index is not unique.
    pub(crate) fn is_apart(&self, write: &Write<'_>) -> bool {
        let Write::Batch { changes, .. } = write else {
            return false;
        };
        changes.is_plural()
            && self
                .slots
                .iter()
                .any(|slot| slot.indexes.iter().any(|index| index.unique))
            && changes.states_index_keys()
    }

    /// Whether a request changes nothing but records, and neither checks nor returns what the newest
    /// state has, unless a transaction checks that when it commits.
    pub(crate) fn is_plain(&mut self, request: &Request<'_>, database: &Database) -> bool {
        match request {
            Request::Write(write) => {
                let reads = match write {
                    Write::GetOrInsert { .. } => true,
                    Write::Batch { changes, .. } => {
                        let mut changes = changes.iter();
                        changes.any(|change| matches!(change, Ok(BatchOp::Check { .. })))
                    }
                    _ => false,
                };
                !reads && !self.is_apart(write) && self.is_of_known(write, database)
            }
            Request::Within { write, .. } => self.is_of_known(write, database),
            Request::TransactionCommit { id, .. } => {
                let open = self.transactions.get(*id);
                !open.is_some_and(|open| open.is_structural)
            }
            Request::Use { .. }
            | Request::UseIndexes { .. }
            | Request::Get { .. }
            | Request::GetMany { .. }
            | Request::HasMany { .. }
            | Request::Count { .. }
            | Request::At { .. }
            | Request::Rank { .. }
            | Request::Edge { .. }
            | Request::Entry { .. }
            | Request::NextExpiry { .. }
            | Request::ScanOpen { .. }
            | Request::ScanNext { .. }
            | Request::ScanSeek { .. }
            | Request::ScanClose { .. }
            | Request::SnapshotOpen { .. }
            | Request::SnapshotClose { .. }
            | Request::TransactionOpen { .. }
            | Request::TransactionClose { .. }
            | Request::Savepoint { .. }
            | Request::RollbackTo { .. }
            | Request::ChangesOpen { .. }
            | Request::ChangesNext { .. }
            | Request::ChangesClose { .. }
            | Request::ChangesReady {} => true,
            _ => false,
        }
    }

    /// Whether a write is of records of collections that exist, with the client's codecs.
    fn is_of_known(&mut self, write: &Write<'_>, database: &Database) -> bool {
        let mut is_known = |collection: u64| {
            let Ok(index) = self.slot_index(collection) else {
                return false;
            };
            self.check(database, index).is_ok() && matches!(self.slots[index].codecs, Codecs::Stored)
        };
        match write {
            Write::Set { collection, .. }
            | Write::Delete { collection, .. }
            | Write::Clear { collection, .. }
            | Write::GetOrInsert { collection, .. } => is_known(*collection),
            Write::Batch { changes, .. } => changes.iter().all(|change| match change {
                Ok(
                    BatchOp::Set { collection, .. }
                    | BatchOp::SetIndexed { collection, .. }
                    | BatchOp::Delete { collection, .. }
                    | BatchOp::Check { collection, .. },
                ) => is_known(collection),
                Err(_) => false,
            }),
            Write::Drop { .. } | Write::Rename { .. } => false,
        }
    }

    /// Writes within a transaction. The reply is that of a commit, with 0 as the version.
    pub(super) fn write_within(
        &mut self,
        id: u64,
        write: &Write<'_>,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let open = self.open_transaction(id)?;
        // Only a batch can fail after making some of its changes.
        let before = matches!(write, Write::Batch { .. }).then(|| open.transaction.savepoint());
        let written = self
            .prepare(Some(id), write, writes, &mut Vec::new(), out)
            .and_then(|is_answered| {
                if !is_answered {
                    let slots = std::mem::take(&mut self.slots);
                    let result = self
                        .open_transaction(id)
                        .and_then(|open| apply(write, &slots, &mut open.transaction));
                    self.slots = slots;
                    reply(write, 0, result?, out);
                }
                Ok(())
            });
        let written = written.map_err(|error| match error {
            Error::IndexMismatch(_) => indexes::since_declared(error, write, &self.slots, writes.database),
            _ => error,
        });
        let is_structural = matches!(write, Write::Drop { .. } | Write::Rename { .. });
        if written.is_err() || is_structural {
            let open = self.open_transaction(id)?;
            open.is_structural |= is_structural;
            open.forget_codecs();
            if let Some(before) = before.filter(|_| written.is_err()) {
                open.transaction.rollback_to(&before);
            }
        }
        written
    }

    /// Checks a write, so that only the storage can make it fail once it begins. Collects the slots
    /// whose codecs the write has to store. Returns whether the reply is complete already.
    fn prepare(
        &mut self,
        transaction: Option<u64>,
        write: &Write<'_>,
        writes: &mut Writes<'_>,
        fresh: &mut Vec<usize>,
        out: &mut Writer,
    ) -> Result<bool> {
        match *write {
            Write::Set {
                collection, key, value, ..
            } => {
                let record = Record {
                    collection,
                    key,
                    value,
                    expires_at: None,
                };
                self.prepare_record(transaction, record, writes, fresh)?;
            }
            Write::Delete { collection, .. } | Write::Clear { collection, .. } => {
                self.prepare_slot(transaction, collection, false, writes)?;
            }
            Write::Batch { changes, .. } => {
                for change in changes.iter() {
                    match change? {
                        BatchOp::Set {
                            collection,
                            key,
                            value,
                            expires_at,
                        }
                        | BatchOp::SetIndexed {
                            collection,
                            key,
                            value,
                            expires_at,
                            ..
                        } => {
                            let record = Record {
                                collection,
                                key,
                                value,
                                expires_at,
                            };
                            self.prepare_record(transaction, record, writes, fresh)?;
                        }
                        BatchOp::Delete { collection, .. } => {
                            self.prepare_slot(transaction, collection, false, writes)?;
                        }
                        BatchOp::Check {
                            collection,
                            key,
                            version,
                        } => {
                            let found = self.find(transaction, collection, key, writes)?;
                            check(version, found, &self.slots[to_index(collection)].name, key)?;
                        }
                    }
                }
            }
            Write::GetOrInsert {
                collection,
                key,
                value,
                expires_at,
                ..
            } => {
                let record = Record {
                    collection,
                    key,
                    value,
                    expires_at,
                };
                self.prepare_record(transaction, record, writes, fresh)?;
                if let Some(found) = self.find(transaction, collection, key, writes)? {
                    out.uv(if transaction.is_some() { 0 } else { found.version });
                    out.flag(true);
                    out.bytes(&found.value);
                    return Ok(true);
                }
            }
            Write::Drop { .. } | Write::Rename { .. } => {}
        }
        Ok(false)
    }

    /// Checks a collection's codecs. Returns the slot's index and whether a write of records has to
    /// store the codecs.
    pub(super) fn prepare_slot(
        &mut self,
        transaction: Option<u64>,
        collection: u64,
        stores: bool,
        writes: &Writes<'_>,
    ) -> Result<(usize, bool)> {
        let index = self.slot_index(collection)?;
        if let Some(id) = transaction {
            let open = self
                .transactions
                .get_mut(id)
                .ok_or_else(|| missing(&self.lost, id, Lost::Transaction))?;
            open.prepare(index, &self.slots[index], stores)?;
            return Ok((index, false));
        }
        self.check(writes.database, index)?;
        Ok((index, !matches!(self.slots[index].codecs, Codecs::Stored)))
    }

    /// Checks a record; adds its slot to `fresh` if the write has to store the slot's codecs.
    fn prepare_record(
        &mut self,
        transaction: Option<u64>,
        record: Record<'_>,
        writes: &Writes<'_>,
        fresh: &mut Vec<usize>,
    ) -> Result<()> {
        let (index, is_fresh) = self.prepare_slot(transaction, record.collection, true, writes)?;
        let name = &self.slots[index].name;
        writes
            .database
            .check_record(name, record.key, record.value.len(), record.expires_at)?;
        if is_fresh && !fresh.contains(&index) {
            fresh.push(index);
        }
        Ok(())
    }

    /// Looks up a record where the write goes.
    fn find(
        &mut self,
        transaction: Option<u64>,
        collection: u64,
        key: &[u8],
        writes: &mut Writes<'_>,
    ) -> Result<Option<Entry>> {
        let view = transaction.map_or(View::Current, View::Opened);
        self.newest_source(writes, view, collection)?.entry(key)
    }

    /// Notes that the last write stored the codecs of this slot.
    pub(super) fn now_has_codecs_of(&mut self, index: usize) {
        let Slot {
            name,
            key_codec,
            value_codec,
            ..
        } = &self.slots[index];
        let (name, key_codec, value_codec) = (name.clone(), key_codec.clone(), value_codec.clone());
        for index in self.slots_named(&name).to_vec() {
            let slot = &mut self.slots[index as usize];
            slot.codecs = compare(slot, &key_codec, &value_codec);
        }
    }
}

fn durability(write: &Write<'_>) -> Durability {
    match *write {
        Write::Set { durability, .. }
        | Write::Delete { durability, .. }
        | Write::Clear { durability, .. }
        | Write::Batch { durability, .. }
        | Write::Drop { durability, .. }
        | Write::GetOrInsert { durability, .. }
        | Write::Rename { durability, .. } => durability,
    }
}

/// Appends what follows the status byte of a write's reply.
fn reply(write: &Write<'_>, version: u64, result: u64, out: &mut Writer) {
    out.uv(version);
    match write {
        Write::Set { .. } => {}
        Write::Clear { .. } | Write::Batch { .. } => out.uv(result),
        Write::Delete { .. } | Write::Drop { .. } | Write::Rename { .. } | Write::GetOrInsert { .. } => {
            out.flag(result > 0);
        }
    }
}

/// Converts a checked index of a slot.
#[allow(
    clippy::cast_possible_truncation,
    reason = "it was compared with the number of slots"
)]
fn to_index(collection: u64) -> usize {
    collection as usize
}

/// Fails unless the record has this version or, with `None`, is absent.
fn check(version: Option<u64>, found: Option<Entry>, collection: &str, key: &[u8]) -> Result<()> {
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
