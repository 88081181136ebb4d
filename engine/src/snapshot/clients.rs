//! Reading the client table.

use super::Snapshot;
use crate::error::Result;
use crate::range::{Direction, KeyRange};
use crate::state::CLIENTS;
use crate::tree::value;

impl Snapshot {
    /// Returns the bytes that [`WriteTransaction::remember_client`](crate::WriteTransaction::remember_client)
    /// last stored for a client. O(log n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn client(&self, client: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(collection) = self.hidden(CLIENTS) else {
            return Ok(None);
        };
        let (shared, _) = self.parts();
        let Some(found) = collection.records(&shared.pager).find(client)? else {
            return Ok(None);
        };
        let mut what = Vec::new();
        value::read(&shared.pager.blocks, collection.id, &found.record(), &mut what)?;
        Ok(Some(what))
    }

    /// Returns the names of all clients with stored data, in order. O(n).
    ///
    /// # Errors
    /// Storage errors and corruption.
    pub fn clients(&self) -> Result<Vec<Vec<u8>>> {
        let Some(collection) = self.hidden(CLIENTS) else {
            return Ok(Vec::new());
        };
        let (shared, _) = self.parts();
        let mut cursor = collection.cursor(&KeyRange::all(), Direction::Forward);
        let mut clients = Vec::new();
        while cursor.advance(&collection.records(&shared.pager))? {
            clients.push(cursor.key().to_vec());
        }
        Ok(clients)
    }
}
