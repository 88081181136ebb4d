//! Writing a full backup in pieces, for hosts that cannot wait for all of it.

use super::BackupProgress;
use super::save::{begin_collection, encryption_of, header_of, write_head};
use super::write::FrameWriter;
use crate::error::Result;
use crate::snapshot::{Cursor, Snapshot};
use crate::state::CollectionInfo;

/// A full backup in progress. It holds a snapshot, so that commits can proceed between pieces.
pub struct BackupPieces {
    snapshot: Snapshot,
    collections: Vec<CollectionInfo>,
    /// Index of the collection that the cursor reads, or of the next one.
    collection: usize,
    cursor: Option<Cursor>,
    writer: FrameWriter<Vec<u8>>,
    state: BackupProgress,
    is_done: bool,
}

impl Snapshot {
    /// As [`backup`](Self::backup), with a stream that the caller pulls in pieces.
    ///
    /// # Errors
    /// Only those of writing to memory.
    pub fn backup_pieces(self) -> Result<BackupPieces> {
        let collections = self.collections();
        let header = header_of(&self, &collections);
        let writer = FrameWriter::new(Vec::new(), &header, encryption_of(&self).as_ref())?;
        Ok(BackupPieces {
            snapshot: self,
            collections,
            collection: 0,
            cursor: None,
            writer,
            state: BackupProgress {
                records: 0,
                total_records: header.records,
                bytes: 0,
            },
            is_done: false,
        })
    }
}

impl BackupPieces {
    /// Returns the next piece of the stream; empty after its end. A piece has at least `bytes`
    /// bytes unless it is the last, and may exceed that by a frame of 256 KiB and a value.
    ///
    /// # Errors
    /// Errors of reading the database. The pieces returned by then are not a valid backup.
    pub fn next_piece(&mut self, bytes: usize) -> Result<Vec<u8>> {
        while !self.is_done && self.writer.sink().len() < bytes.max(1) {
            if let Err(error) = self.step() {
                let info = self.collections.get(self.collection);
                return Err(info.map_or(error.clone(), |info| error.in_collection(&info.name)));
            }
        }
        self.state.bytes = self.writer.written();
        Ok(std::mem::take(self.writer.sink()))
    }

    /// Progress so far.
    #[must_use]
    pub fn progress(&self) -> BackupProgress {
        self.state
    }

    /// Writes one record, the start of a collection, or the end.
    fn step(&mut self) -> Result<()> {
        match &mut self.cursor {
            Some(cursor) => {
                if cursor.advance()? {
                    write_head(cursor, &mut self.writer)?;
                    cursor.value_parts(|part| self.writer.write(part))?;
                    self.state.records += 1;
                } else {
                    self.cursor = None;
                    self.collection += 1;
                }
            }
            None => match self.collections.get(self.collection) {
                Some(info) => self.cursor = Some(begin_collection(&self.snapshot, info, &mut self.writer)?),
                None => {
                    self.writer.finish(self.state.total_records)?;
                    self.is_done = true;
                }
            },
        }
        Ok(())
    }
}

impl std::fmt::Debug for BackupPieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupPieces")
            .field("progress", &self.state)
            .finish_non_exhaustive()
    }
}
