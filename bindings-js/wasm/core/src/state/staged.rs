//! Values in parts: reading a range of one, and writing one by several requests.
//!
//! In browsers all of this belongs to the lazy part of the module; see [`lazy`](crate::lazy).

use std::ops::Range;

use mangrove_engine::{Database, Durability, Error, Result, StagedValue};

use super::{State, unacceptable};
use crate::pending::Writes;
use crate::protocol::{View, Writer};
use crate::request::LazyRequest;
use crate::table::Table;
use crate::{maintenance, secret};

/// Limit per client on values that are being written; each takes up to a megabyte of memory.
const MAX_STAGED: usize = 64;
/// Limit on the bytes of one reply.
const MAX_PART_BYTES: u64 = 16 << 20;

impl State {
    fn staged(&mut self) -> &mut Table<StagedValue> {
        self.staged.get_or_insert_default()
    }

    pub(super) fn execute_body(
        &mut self,
        durability: Durability,
        body: &[u8],
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        match LazyRequest::read(body)? {
            LazyRequest::Read {
                view,
                collection,
                key,
                start,
                end,
            } => self.get_range((view, collection), key, start..end, writes.database, out),
            LazyRequest::Append {
                id,
                collection,
                offset,
                bytes,
            } => self.append(id, collection, offset, bytes, writes),
            LazyRequest::Store {
                id,
                collection,
                key,
                expires_at,
            } => self.store_staged(durability, id, (collection, key, expires_at), writes, out),
            LazyRequest::Discard { id } => {
                self.staged().remove(id);
                Ok(())
            }
            LazyRequest::ChangeKey { secret } => {
                writes.client.check_writable()?;
                secret::change_key(writes.database, secret)
            }
            LazyRequest::Reencrypt { slices, begins } => {
                writes.client.check_writable()?;
                writes.end_inheritance();
                maintenance::reencrypt(writes.database, slices, begins, out)
            }
        }
    }

    /// Writes whether there is a record, the length of its value, its version and the part.
    fn get_range(
        &mut self,
        (view, collection): (View, u64),
        key: &[u8],
        range: Range<u64>,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        let end = range.end.min(range.start.saturating_add(MAX_PART_BYTES));
        let part = self
            .source(database, view, collection)?
            .get_range(key, range.start..end)?;
        out.flag(part.is_some());
        if let Some(part) = part {
            out.uv(part.value_len);
            out.uv(part.version);
            out.bytes(&part.bytes);
        }
        Ok(())
    }

    /// Appends to a staged value. The client may repeat a request whose reply was lost.
    fn append(&mut self, id: u64, collection: u64, offset: u64, bytes: &[u8], writes: &mut Writes<'_>) -> Result<()> {
        writes.client.check_writable()?;
        if offset == 0 && self.staged().get(id).is_none() {
            self.staged().check_room(MAX_STAGED, "values being written")?;
            let value = self.begin_staged(collection, writes)?;
            self.staged().insert(id, value);
        }
        // Without the value, its client is one whose leader changed.
        let value = self.staged().get_mut(id).ok_or(Error::SnapshotLost)?;
        let len = value.len();
        if offset < len && offset + bytes.len() as u64 <= len {
            return Ok(());
        }
        if offset != len {
            return Err(unacceptable("a part is at the wrong offset"));
        }
        let appended = value.append(bytes);
        if appended.is_err() {
            self.staged().remove(id);
        }
        appended
    }

    /// Begins a value, for which the collection has to exist.
    fn begin_staged(&mut self, collection: u64, writes: &mut Writes<'_>) -> Result<StagedValue> {
        let database = writes.database;
        let (index, is_fresh) = self.prepare_slot(None, collection, true, writes)?;
        if is_fresh {
            let slot = &self.slots[index];
            let mut transaction = database.begin()?;
            transaction.set_codecs(&slot.name, &slot.key_codec, &slot.value_codec)?;
            self.forget_current();
            transaction.commit(Durability::Relaxed)?;
            self.now_has_codecs_of(index);
        }
        database.stage_value(&self.slots[index].name)
    }

    fn store_staged(
        &mut self,
        durability: Durability,
        id: u64,
        (collection, key, expires_at): (u64, &[u8], Option<u64>),
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (index, _) = self.prepare_slot(None, collection, true, writes)?;
        let value = self.staged().take(id).ok_or(Error::SnapshotLost)?;
        self.forget_current();
        let name = &self.slots[index].name;
        let stored = writes.commit(durability, |transaction| {
            transaction.put_staged(name, key, value, expires_at)
        });
        let (info, ()) = stored.map_err(|error| match error {
            // The collection was dropped since the value was begun, and its blocks name it.
            Error::InvalidArgument { .. } => Error::SnapshotLost,
            error => error,
        })?;
        out.uv(info.version);
        Ok(())
    }
}
