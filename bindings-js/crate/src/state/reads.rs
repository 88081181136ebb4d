//! Lookups, counts and positions, and scans.

use mangrove_engine::{Database, Result};

use super::{Lost, State, missing};
use crate::protocol::{Reader, View, Writer};
use crate::range;
use crate::scan::{Origin, Scan};
use crate::session::Writes;
use crate::table::MAX_OPEN;

impl State {
    pub(super) fn get(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, key) = (reader.view()?, reader.uv()?, reader.bytes()?);
        let source = self.newest_source(writes, view, collection)?;
        out.optional_with(|into| source.get_into(key, into))
    }

    pub(super) fn get_many(
        &mut self,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (view, collection) = (reader.view()?, reader.uv()?);
        let (count, mut keys) = reader.list()?;
        let source = self.newest_source(writes, view, collection)?;
        for _ in 0..count {
            let key = keys.bytes()?;
            out.optional_with(|into| source.get_into(key, into))?;
        }
        Ok(())
    }

    pub(super) fn has_many(
        &mut self,
        writes: &mut Writes<'_>,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (view, collection) = (reader.view()?, reader.uv()?);
        let (count, mut keys) = reader.list()?;
        let source = self.newest_source(writes, view, collection)?;
        for _ in 0..count {
            out.flag(source.contains(keys.bytes()?)?);
        }
        Ok(())
    }

    pub(super) fn count(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        out.uv(self.source(database, view, collection)?.count(range)?);
        Ok(())
    }

    pub(super) fn rank(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range, key) = (reader.view()?, reader.uv()?, reader.range()?, reader.bytes()?);
        let source = self.source(database, view, collection)?;
        out.uv(source.count(range::before(range, key))?);
        Ok(())
    }

    pub(super) fn at(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let (from_end, index) = (reader.flag()?, reader.uv()?);
        let source = self.source(database, view, collection)?;
        source.at(range, from_end, index, out)
    }

    pub(super) fn edge(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, range) = (reader.view()?, reader.uv()?, reader.range()?);
        let from_end = reader.flag()?;
        let source = self.source(database, view, collection)?;
        source.at(range, from_end, 0, out)
    }

    pub(super) fn entry(&mut self, writes: &mut Writes<'_>, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (view, collection, key) = (reader.view()?, reader.uv()?, reader.bytes()?);
        let entry = self.newest_source(writes, view, collection)?.entry(key)?;
        out.flag(entry.is_some());
        if let Some(entry) = entry {
            out.bytes(&entry.value);
            out.uv(entry.version);
            out.uv(entry.expires_at.unwrap_or(0));
        }
        Ok(())
    }

    pub(super) fn scan_open(&mut self, database: &Database, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, view, collection) = (reader.uv()?, reader.view()?, reader.uv()?);
        let (range, options) = (reader.range()?, reader.scan_options()?);
        let transaction = match view {
            View::Opened(transaction) => transaction,
            View::Current => 0,
        };
        self.scans
            .check_room(MAX_OPEN, "open iterators; read them to the end or return()")?;
        let source = self.source(database, view, collection)?;
        let mut scan = Scan::open(&source, transaction, range, &options)?;
        if scan.chunk(options.chunk, source.transaction(), out)? {
            if scan.transaction == 0 && self.is_portable {
                scan.origin = self
                    .version(view)
                    .map(|version| Origin::new(collection, version, range));
            }
            self.scans.insert(id, scan);
            self.has_changed = true;
        }
        Ok(())
    }

    pub(super) fn scan_next(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, chunk) = (reader.uv()?, reader.chunk()?);
        let lost = &self.lost;
        let scan = self.scans.get_mut(id).ok_or_else(|| missing(lost, id, Lost::View))?;
        let open = self.transactions.get_mut(scan.transaction);
        let result = scan.chunk(chunk, open.map(|open| &open.transaction), out);
        if !matches!(result, Ok(true)) {
            self.scans.remove(id);
        }
        result.map(|_| ())
    }

    pub(super) fn scan_seek(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let (id, key, limit) = (reader.uv()?, reader.bytes()?, reader.limit()?);
        let lost = &self.lost;
        let scan = self.scans.get_mut(id).ok_or_else(|| missing(lost, id, Lost::View))?;
        let open = self.transactions.get_mut(scan.transaction);
        scan.seek(key, limit, open.map(|open| &open.transaction))
    }

    pub(super) fn scan_close(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let id = reader.uv()?;
        self.scans.remove(id);
        self.lost.table.remove(id);
        Ok(())
    }
}
