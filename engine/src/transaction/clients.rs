//! The client table: for each client of a server, what its last request led to, kept in the same atomic commit as what the request changed.
//!
//! A server that answers requests over a way that may lose the answer stores with each commit who asked for it and what was answered. Its
//! successor then knows of a request that is sent again whether it was done (Liskov and Cowling, "Viewstamped Replication Revisited", 2012,
//! section 4.1). The table is a hidden collection: no reader, feed or count shows it.

use super::WriteTransaction;
use crate::error::Result;
use crate::state::CLIENTS;

impl WriteTransaction<'_> {
    /// Stores what is to be remembered for a client, instead of what was. It belongs to the last commit of this transaction, which it seals,
    /// and gets no version of its own; in a transaction that changed nothing it is not stored. O(log n).
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`](crate::Error::KeyTooLarge) and [`Error::ValueTooLarge`](crate::Error::ValueTooLarge) leave the transaction as it was;
    /// storage errors end it.
    pub fn remember_client(&mut self, client: &[u8], what: &[u8]) -> Result<()> {
        self.check_lengths(client, what.len(), 0)?;
        self.beside_commits(|transaction| {
            transaction.create_unchecked(CLIENTS)?;
            transaction.put_record(CLIENTS, client, what, 0).map(drop)
        })
    }

    /// Removes what is remembered for a client, as [`remember_client`](Self::remember_client) stores it. O(log n).
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn forget_client(&mut self, client: &[u8]) -> Result<()> {
        if self.find(CLIENTS, client)?.is_none() {
            return Ok(());
        }
        self.beside_commits(|transaction| transaction.delete(CLIENTS, client).map(drop))
    }

    /// Runs changes that count as no commit, unless there is none they could go with.
    fn beside_commits(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.check_usable()?;
        if self.seal().version == self.base {
            return Ok(());
        }
        // It is small, and a commit that only removes has to find room where the storage is full.
        let (capture, stores) = (self.capture.take(), self.stores);
        let result = change(self);
        (self.capture, self.stores) = (capture, stores);
        self.changed = false;
        result
    }
}
