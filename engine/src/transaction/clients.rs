//! The client table: the outcome of each server client's last request, stored in the same atomic
//! commit as that request's changes.
//!
//! A server whose answers may be lost on the way stores with each commit who asked for it and what
//! was answered. If a request is sent again, the server's successor then knows whether it was done
//! (Liskov and Cowling, "Viewstamped Replication Revisited", 2012, section 4.1). The table is a
//! hidden collection: no reader, feed or count shows it.

use super::ExclusiveTransaction;
use crate::error::Result;
use crate::state::CLIENTS;

impl ExclusiveTransaction<'_> {
    /// Stores a client's outcome, replacing the one before. It belongs to the
    /// last commit of this transaction, which this call seals, and gets no version. A
    /// transaction that changed nothing does not store it. O(log n).
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`](crate::Error::KeyTooLarge) and
    /// [`Error::ValueTooLarge`](crate::Error::ValueTooLarge) leave the transaction unchanged;
    /// storage errors end it.
    pub fn remember_client(&mut self, client: &[u8], what: &[u8]) -> Result<()> {
        self.shared.check_lengths(client, what.len(), false)?;
        self.beside_commits(|transaction| {
            transaction.create_unchecked(CLIENTS)?;
            transaction.put_record(CLIENTS, client, what, 0).map(drop)
        })
    }

    /// Removes the outcome that [`remember_client`](Self::remember_client) stored for a client. O(log n).
    ///
    /// # Errors
    /// Storage errors end the transaction.
    pub fn forget_client(&mut self, client: &[u8]) -> Result<()> {
        if self.find(CLIENTS, client)?.is_none() {
            return Ok(());
        }
        self.beside_commits(|transaction| transaction.delete(CLIENTS, client).map(drop))
    }

    /// Runs changes that do not count as a commit. Does nothing if there is no commit to attach
    /// them to.
    fn beside_commits(&mut self, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.check_usable()?;
        if self.seal().version == self.base {
            return Ok(());
        }
        // Not counted as storing: the change is small, and a commit that only removes has to find
        // space when the storage is full.
        let (capture, stores) = (self.capture.take(), self.stores);
        let result = change(self);
        (self.capture, self.stores) = (capture, stores);
        self.changed = false;
        result
    }
}
