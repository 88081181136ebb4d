//! Backups that the client takes piece by piece.

use mangrove_engine::{Database, Result};

use super::{Lost, State, missing};
use crate::protocol::Writer;
use crate::table::MAX_OPEN_LARGE;

/// Limit on the size that a client can ask for. A piece may exceed it by a frame and a value.
const MAX_PIECE_BYTES: u64 = 16 << 20;

impl State {
    pub(super) fn backup_open(&mut self, id: u64, database: &Database, out: &mut Writer) -> Result<()> {
        self.backups
            .check_room(MAX_OPEN_LARGE, "open backups; read them to the end or cancel() them")?;
        let pieces = database.snapshot().backup_pieces()?;
        out.uv(pieces.progress().total_records);
        self.backups.insert(id, pieces);
        Ok(())
    }

    pub(super) fn backup_next(&mut self, id: u64, bytes: u64, out: &mut Writer) -> Result<()> {
        let pieces = self
            .backups
            .get_mut(id)
            .ok_or_else(|| missing(&self.lost, id, Lost::View))?;
        let piece = pieces.next_piece(usize::try_from(bytes.min(MAX_PIECE_BYTES)).unwrap_or(usize::MAX))?;
        out.uv(pieces.progress().records);
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
