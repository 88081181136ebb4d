//! Writing a full backup, in one go or in pieces.

use std::io::Write;
use std::ops::ControlFlow;

use super::header::Header;
use super::write::FrameWriter;
use super::{BackupOutcome, BackupProgress, BackupReport, Control, Flow, Stop};
use crate::block::HEADER_BYTES;
use crate::error::Result;
use crate::pages::Encryption;
use crate::range::{Direction, KeyRange};
use crate::snapshot::{Cursor, Snapshot};
use crate::state::CollectionInfo;

impl Snapshot {
    /// Writes everything in this snapshot to `into`, in the form that [`restore`](crate::restore)
    /// reads.
    ///
    /// Other threads may write to the database meanwhile. `progress` is called at the beginning, at
    /// the end and at least once for every megabyte of data.
    ///
    /// The backup includes the records' expiry, and expired records not yet purged. It does not
    /// include a change feed or the versions of the records.
    ///
    /// Memory is bounded by a few frames of 256 KiB and a value chunk of 1 MiB.
    ///
    /// # Errors
    /// Errors of reading the database, and [`Error::Io`](crate::Error::Io) and
    /// [`Error::StorageFull`](crate::Error::StorageFull) of the sink. The output until then is
    /// not a valid backup.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::sync::Arc;
    /// use mangrove_engine::{BackupOutcome, Database, Durability, Options, restore, storage::MemoryStorage};
    ///
    /// let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
    /// let mut transaction = database.begin()?;
    /// transaction.set("cities", b"Quito", b"2.0 M")?;
    /// transaction.commit(Durability::Strict)?;
    ///
    /// let mut progress = |_| ControlFlow::Continue(());
    /// let mut stream = Vec::new();
    /// let report = database.snapshot().backup(&mut stream, &mut progress)?;
    /// assert_eq!((report.outcome, report.records), (BackupOutcome::Complete, 1));
    ///
    /// let target = MemoryStorage::new();
    /// restore(&mut &stream[..], Arc::new(target.clone()), Options::default(), &mut progress)?;
    /// let copy = Database::open(Arc::new(target), Options::default())?;
    /// assert_eq!(copy.version(), database.version());
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    pub fn backup(
        &self,
        into: &mut dyn Write,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let collections = self.collections();
        let header = header_of(self, &collections);
        let mut control = Control::new(progress, header.records);
        let outcome = match save(self, &header, &collections, into, &mut control) {
            Ok(()) => BackupOutcome::Complete,
            Err(Stop::Cancelled) => BackupOutcome::Cancelled,
            Err(Stop::Failed(error)) => return Err(error),
        };
        Ok(BackupReport {
            outcome,
            database_id: header.database_id,
            base: 0,
            version: header.version,
            collections: control.collections,
            records: control.state.records,
            commits: 0,
            changes: 0,
            bytes: control.state.bytes,
        })
    }
}

/// How the streams of a database are encrypted.
pub(super) fn encryption_of(snapshot: &Snapshot) -> Option<Encryption> {
    snapshot
        .shared()
        .credentials()
        .map(|credentials| credentials.encryption)
}

pub(super) fn header_of(snapshot: &Snapshot, collections: &[CollectionInfo]) -> Header {
    Header {
        node_bytes: (snapshot.config().limits.node_capacity + HEADER_BYTES) as u32,
        database_id: snapshot.config().database_id,
        version: snapshot.version(),
        base: 0,
        records: collections.iter().map(|info| info.count).sum(),
        collections: collections.len() as u32,
    }
}

fn save(
    snapshot: &Snapshot,
    header: &Header,
    collections: &[CollectionInfo],
    into: &mut dyn Write,
    control: &mut Control<'_>,
) -> Flow<()> {
    control.report()?;
    let mut writer = FrameWriter::new(into, header, encryption_of(snapshot).as_ref())?;
    for info in collections {
        save_collection(snapshot, info, &mut writer, control).map_err(|stop| match stop {
            Stop::Failed(error) => Stop::Failed(error.in_collection(&info.name)),
            Stop::Cancelled => stop,
        })?;
        control.collections += 1;
    }
    control.state.bytes = writer.finish(header.records)?;
    // The backup is complete, so the callback can no longer cancel.
    let _ = control.report();
    Ok(())
}

fn save_collection(
    snapshot: &Snapshot,
    info: &CollectionInfo,
    writer: &mut FrameWriter<&mut dyn Write>,
    control: &mut Control<'_>,
) -> Flow<()> {
    let mut cursor = begin_collection(snapshot, info, writer)?;
    while cursor.advance()? {
        write_head(&cursor, writer)?;
        cursor.value_parts(|part| {
            writer.write(part)?;
            control.at(writer.frames(), writer.written())
        })?;
        control.state.records += 1;
    }
    Ok(())
}

/// Writes the frames that precede the records of a collection; returns a cursor over the records.
pub(super) fn begin_collection<W: Write>(
    snapshot: &Snapshot,
    info: &CollectionInfo,
    writer: &mut FrameWriter<W>,
) -> Result<Cursor> {
    for text in [&info.name, &info.key_codec, &info.value_codec] {
        writer.write_counted(text.as_bytes())?;
    }
    writer.write_varint(info.count)?;
    let tree = snapshot.collection(&info.name).expect("the snapshot lists it");
    Ok(tree.with_expired().cursor(KeyRange::all(), Direction::Forward))
}

/// Writes the fields that precede a record's value.
pub(super) fn write_head<W: Write>(cursor: &Cursor, writer: &mut FrameWriter<W>) -> Result<()> {
    writer.write_counted(cursor.key())?;
    let expires_at = cursor.expires_at();
    writer.write_varint((cursor.value_len() as u64) << 1 | u64::from(expires_at.is_some()))?;
    match expires_at {
        Some(expires_at) => writer.write_varint(expires_at),
        None => Ok(()),
    }
}

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
