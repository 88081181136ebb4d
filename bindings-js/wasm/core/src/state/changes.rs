//! Requests of followers.

use std::ops::Bound;

use mangrove_engine::{Database, Error, Result, Snapshot};

use super::State;
use crate::filter::Filter;
use crate::protocol::{REPLY_BYTES, View, Writer};
use crate::request::Part;

impl State {
    /// Whether there are commits for followers that had read everything; true once.
    pub(crate) fn is_due(&mut self, database: &Database) -> bool {
        self.followers.is_due(database) | std::mem::take(&mut self.must_hear_of_schema)
    }

    /// Continues the followers in a refreshed database that was in state `before`.
    pub(crate) fn refresh(&mut self, before: &Snapshot, database: &Database) {
        self.followers.refresh(before, database);
    }

    pub(super) fn changes_open(
        &mut self,
        id: u64,
        since: Option<u64>,
        part: Option<Part<'_>>,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        let filter = if let Some(Part { collection, range }) = part {
            // Fails if the codecs differ: the client could not decode the changes.
            self.tree(database, View::Current, collection)?;
            let slot = &self.slots[self.slot_index(collection)?];
            let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
            Some(Filter {
                name: slot.name.clone(),
                key_codec: slot.key_codec.clone(),
                value_codec: slot.value_codec.clone(),
                lower: owned(range.lower),
                upper: owned(range.upper),
            })
        } else {
            None
        };
        let version = self.followers.open(database, id, since, filter)?;
        out.uv(version);
        Ok(())
    }

    pub(super) fn changes_next(
        &mut self,
        id: u64,
        max_bytes: u64,
        database: &Database,
        out: &mut Writer,
    ) -> Result<()> {
        if self.lost.is_all && !self.followers.has(id) {
            return Err(Error::TruncatedFeed {
                horizon: database.version().into(),
            });
        }
        self.followers
            .next(database, id, max_bytes.clamp(1, REPLY_BYTES as u64), out)
    }

    pub(super) fn changes_close(&mut self, id: u64) {
        self.followers.close(id);
    }

    pub(super) fn changes_ready(&mut self, database: &Database, out: &mut Writer) {
        self.followers.ready(database, out);
    }
}
