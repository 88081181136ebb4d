//! Following the commits.

use std::ops::Bound;

use mangrove_engine::{Database, Error, Result};

use super::State;
use crate::feed::{Filter, Follower};
use crate::protocol::{Reader, View, Writer};

impl State {
    /// Whether somebody follows the commits.
    pub(crate) fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    pub(super) fn changes_open(
        &mut self,
        database: &Database,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<()> {
        let (id, since) = (reader.uv()?, reader.uv()?.checked_sub(1));
        let filter = if reader.flag()? {
            let (collection, range) = (reader.uv()?, reader.range()?);
            // What is stored with other codecs cannot be followed.
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
        let follower = Follower::new(database, since, filter)?;
        out.uv(follower.version());
        self.followers.insert(id, follower);
        Ok(())
    }

    pub(super) fn changes_next(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Result<()> {
        let (id, max_bytes) = (reader.uv()?, reader.uv()?);
        let follower = self.followers.get_mut(id).ok_or(Error::Closed)?;
        follower.next(max_bytes.max(1), out)
    }

    pub(super) fn changes_close(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let id = reader.uv()?;
        self.followers.remove(id);
        Ok(())
    }
}
