//! Lookups, counts, positions and scans.

use mangrove_engine::{Database, KeyRange, Result};

use super::{Lost, State, missing};
use crate::pending::Writes;
use crate::protocol::{CUT, ChunkLimit, REPLY_BYTES, ScanOptions, View, Writer};
use crate::request::Keys;
use crate::scan::{Origin, Scan};
use crate::table::MAX_OPEN;

impl State {
    pub(super) fn get(
        &mut self,
        view: View,
        collection: u64,
        key: &[u8],
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let source = self.newest_source(writes, view, collection)?;
        out.optional_with(|into| source.get_into(key, into))
    }

    pub(super) fn get_many(
        &mut self,
        view: View,
        collection: u64,
        id: u64,
        keys: Keys<'_>,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let start = out.position();
        let source = self.newest_source(writes, view, collection)?;
        for key in keys.iter() {
            let key = key?;
            if out.position() - start >= REPLY_BYTES {
                out.raw(&[CUT]);
                // A state with uncommitted writes cannot be kept open: the session repeats the
                // request once they are committed.
                if view == View::Current && !writes.is_open() {
                    self.keep_current(id)?;
                }
                break;
            }
            out.optional_with(|into| source.get_into(key, into))?;
        }
        Ok(())
    }

    pub(super) fn has_many(
        &mut self,
        view: View,
        collection: u64,
        keys: Keys<'_>,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let source = self.newest_source(writes, view, collection)?;
        for key in keys.iter() {
            out.flag(source.contains(key?)?);
        }
        Ok(())
    }

    pub(super) fn count(
        &mut self,
        view: View,
        collection: u64,
        range: KeyRange<'_>,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        out.uv(self.source(database, view, collection)?.count(range)?);
        Ok(())
    }

    pub(super) fn at(
        &mut self,
        (view, collection, range): (View, u64, KeyRange<'_>),
        from_end: bool,
        index: u64,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        let source = self.source(database, view, collection)?;
        source.at(range, from_end, index, out)
    }

    pub(super) fn entry(
        &mut self,
        view: View,
        collection: u64,
        key: &[u8],
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let entry = self.newest_source(writes, view, collection)?.entry(key)?;
        out.flag(entry.is_some());
        if let Some(entry) = entry {
            out.bytes(&entry.value);
            out.uv(entry.version);
            out.uv(entry.expires_at.unwrap_or(0));
        }
        Ok(())
    }

    pub(super) fn scan_open(
        &mut self,
        id: u64,
        (view, collection, range): (View, u64, KeyRange<'_>),
        options: ScanOptions,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
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
                    .map(|version| Origin::new(collection, 0, version, range));
            }
            self.scans.insert(id, scan);
            self.has_changed = true;
        }
        Ok(())
    }

    pub(super) fn scan_next(&mut self, id: u64, chunk: ChunkLimit, out: &mut Writer) -> Result<()> {
        let lost = &self.lost;
        let scan = self.scans.get_mut(id).ok_or_else(|| missing(lost, id, Lost::View))?;
        let open = self.transactions.get_mut(scan.transaction);
        let result = scan.chunk(chunk, open.map(|open| &open.transaction), out);
        if !matches!(result, Ok(true)) {
            self.scans.remove(id);
        }
        result.map(|_| ())
    }

    pub(super) fn scan_seek(&mut self, id: u64, key: &[u8], limit: Option<u64>) -> Result<()> {
        let lost = &self.lost;
        let scan = self.scans.get_mut(id).ok_or_else(|| missing(lost, id, Lost::View))?;
        let open = self.transactions.get_mut(scan.transaction);
        scan.seek(key, limit, open.map(|open| &open.transaction))
    }

    pub(super) fn scan_close(&mut self, id: u64) {
        self.scans.remove(id);
        self.lost.table.remove(id);
    }
}
