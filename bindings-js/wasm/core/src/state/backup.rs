//! Backups that the client takes piece by piece.

use mangrove_engine::{BackupPieces, Database, Result, Snapshot};

use super::{Lost, State, missing};
use crate::protocol::Writer;
use crate::table::MAX_OPEN_LARGE;

/// Limit on the size that a client can ask for. A piece may exceed it by a frame and a value.
const MAX_PIECE_BYTES: u64 = 16 << 20;

/// A backup. The first piece begins it, so that the core of a module that was split need not know
/// how.
pub(super) enum Backup {
    Opened(Snapshot),
    Begun(Box<BackupPieces>),
}

impl State {
    pub(super) fn backup_open(&mut self, id: u64, database: &Database) -> Result<()> {
        self.backups
            .check_room(MAX_OPEN_LARGE, "open backups; read them to the end or cancel() them")?;
        self.backups.insert(id, Backup::Opened(database.snapshot()));
        Ok(())
    }

    /// Writes the number of records so far, that of all records, and the next piece.
    pub(super) fn backup_next(&mut self, id: u64, bytes: u64, out: &mut Writer) -> Result<()> {
        let backup = self
            .backups
            .get_mut(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::View))?;
        if let Backup::Opened(snapshot) = backup {
            *backup = Backup::Begun(Box::new(snapshot.clone().backup_pieces()?));
        }
        let Backup::Begun(pieces) = backup else {
            return Ok(());
        };
        let piece = pieces.next_piece(usize::try_from(bytes.min(MAX_PIECE_BYTES)).unwrap_or(usize::MAX))?;
        let progress = pieces.progress();
        out.uv(progress.records);
        out.uv(progress.total_records);
        out.bytes(&piece);
        if piece.is_empty() {
            self.backups.remove(id);
        }
        Ok(())
    }

    pub(super) fn backup_close(&mut self, id: u64) {
        self.backups.remove(id);
        self.lost.table.remove(id);
    }
}
