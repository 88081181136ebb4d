//! Requests that the lazy part of the module executes; see [`lazy`](crate::lazy).

use mangrove_engine::{Error, Result};

use super::State;
use crate::pending::Writes;
use crate::protocol::Writer;
use crate::request::Request;
use crate::{maintenance, report};

impl State {
    // A root of the lazy part of the module: the build finds it by its name.
    // Lazy root.
    #[inline(never)]
    pub(super) fn execute_lazy(
        &mut self,
        request: &Request<'_>,
        writes: &mut Writes<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let database = writes.database;
        // Statistics count open snapshots, and the others want freed space; this state is not the
        // client's.
        self.forget_current();
        match *request {
            Request::Stats {} => out.bytes(report::stats(database)?.as_bytes()),
            Request::Verify { id, bytes } => self.verify(id, bytes, database, out)?,
            Request::BackupNext { id, bytes } => self.backup_next(id, bytes, out)?,
            Request::Compact {
                slices,
                threshold_bytes,
            } => {
                writes.client.check_writable()?;
                writes.end_inheritance();
                maintenance::compact(database, slices, threshold_bytes, out)?;
            }
            Request::Layout { id, visits, begins } => self.layout(id, visits, begins, database, out)?,
            Request::DeclareIndexes { durability, collection } => {
                self.declare_indexes(durability, collection, writes, out)?;
            }
            Request::DropIndex {
                durability,
                collection,
                name,
            } => self.drop_index(durability, collection, name, writes, out)?,
            Request::Indexes { collection } => self.report_indexes(collection, database, out)?,
            Request::IndexSlice { .. } => self.index_slice(request, writes, out)?,
            Request::IndexCount {
                view,
                collection,
                index,
                range,
            } => self.index_count((view, collection, index), range, database, out)?,
            Request::IndexAt {
                view,
                collection,
                index,
                range,
                from_end,
                position,
            } => self.index_at((view, collection, index), range, (from_end, position), database, out)?,
            Request::IndexScan {
                id,
                view,
                collection,
                index,
                range,
                options,
            } => self.index_scan(id, (view, collection, index), range, options, database, out)?,
            Request::Lazy { durability, body } => self.execute_body(durability, body, writes, out)?,
            // `State::execute_request` has the others.
            _ => return Err(Error::Closed),
        }
        Ok(())
    }
}
