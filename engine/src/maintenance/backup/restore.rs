//! Restoring a full backup to a new database.

use std::io::Read;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::header::Header;
use super::read::FrameReader;
use super::{BackupOutcome, BackupProgress, Control, Flow, RestoreReport, Stop};
use crate::database::{Database, Options};
use crate::error::{Error, Result};
use crate::log::LOG_FILE;
use crate::node::cell::MAX_VALUE_BYTES;
use crate::pages::{AREA_BYTES, DATA_FILE};
use crate::state::expiry::HINT_BYTES;
use crate::state::{MAX_CODEC_BYTES, MAX_NAME_BYTES};
use crate::storage::{Storage, StorageFile};
use crate::transaction::{Durability, ExclusiveTransaction};

/// Restores a backup written by [`Snapshot::backup`](crate::Snapshot::backup) to a new database in
/// `target`.
///
/// The new database gets the id and the version of the original. Records keep their expiry; all of
/// them get the version of the database.
///
/// With a key in `options` the new database is encrypted, whether or not the original was.
///
/// `options` apply to the new database, except that no feed is started. Their id overrides the
/// backup's, and nodes become larger than they say if the keys may require it.
///
/// The database is complete or does not exist: its superblocks are written last, after everything
/// was compared with the totals of the backup and verified. After an error or a cancellation the
/// target is empty again. A restore that a killed process or a power failure cut off does not open as a
/// database and has to be removed.
///
/// `progress` is called at the beginning, before the verification, and at least once for every
/// megabyte of data.
///
/// Memory is bounded by the cache, a few frames of 256 KiB, and a value chunk of 1 MiB.
///
/// # Errors
/// [`Error::AlreadyExists`] if `target` is not empty, [`Error::NotADatabase`] if the stream is not
/// a backup, [`Error::WrongKey`] if it is encrypted and `options` have another key or none,
/// [`Error::VersionUnsupported`], [`Error::CorruptBackup`] if it is damaged or truncated,
/// [`Error::InvalidArgument`] if it is an incremental one, and the errors of opening and writing
/// the new database.
#[allow(
    clippy::needless_pass_by_value,
    reason = "storages are handed over, as to Database::open"
)]
pub fn restore(
    from: &mut dyn Read,
    target: Arc<dyn Storage>,
    options: Options,
    progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<RestoreReport> {
    for name in [DATA_FILE, LOG_FILE] {
        if target.exists(name)? && !target.open(name, false)?.is_empty()? {
            return Err(Error::AlreadyExists {
                what: format!("the file {name} of the new database").into(),
            });
        }
    }
    let (header, mut reader) = FrameReader::new(from, options.key.as_ref())?;
    if header.base != 0 {
        return Err(Error::InvalidArgument {
            what: format!(
                "this is an incremental backup, of versions {} to {}; restore the full one that it builds on",
                header.base + 1,
                header.version
            )
            .into(),
        });
    }
    let mut control = Control::new(progress, header.records);
    let result = run(&header, &mut reader, &target, options, &mut control);
    let report = |outcome, blocks| RestoreReport {
        outcome,
        database_id: header.database_id,
        version: header.version,
        collections: control.collections,
        records: control.state.records,
        commits: 0,
        changes: 0,
        bytes: control.state.bytes,
        blocks,
    };
    match result {
        Ok(blocks) => Ok(report(BackupOutcome::Complete, blocks)),
        // Another process created a database there since the check: it is not ours to remove.
        Err(Stop::Failed(error @ (Error::AlreadyExists { .. } | Error::Locked { .. }))) => Err(error),
        Err(stop) => {
            for name in [DATA_FILE, LOG_FILE] {
                // Ignored, so that the original error is reported. The target was empty; leftovers
                // are useless.
                let _ = target.remove(name);
            }
            match stop {
                Stop::Failed(error) => Err(error),
                Stop::Cancelled => Ok(report(BackupOutcome::Cancelled, 0)),
            }
        }
    }
}

/// Creates the database; returns how many of its blocks were verified.
fn run(
    header: &Header,
    reader: &mut FrameReader<'_>,
    target: &Arc<dyn Storage>,
    mut options: Options,
    control: &mut Control<'_>,
) -> Flow<u64> {
    control.report()?;
    options.create = true;
    options.exclusive = true;
    options.read_only = false;
    // Starting a feed would take another commit, and the feed would contain only the restore.
    options.feed_commits = 0;
    options.advanced.database_id = options.advanced.database_id.or(Some(header.database_id));
    options.advanced.node_bytes = options.advanced.node_bytes.max(header.node_bytes);
    let storage = Arc::new(HeldStorage::new(Arc::clone(target))?);
    let database = Database::open(Arc::clone(&storage) as Arc<dyn Storage>, options)?;
    // A single transaction has one version, and no more of it stays in memory than the cache holds.
    let mut transaction = database.begin()?;
    transaction.start_as(header.version.max(1));
    read_all(header, reader, &mut transaction, database.max_key_bytes(), control)?;
    if header.version > 0 {
        transaction.commit(Durability::Strict)?;
    } else {
        drop(transaction);
    }
    control.report()?;
    let verified = database.verify()?;
    if let Some(problem) = verified.problems.into_iter().next() {
        return Err(Stop::Failed(problem));
    }
    let records: u64 = database.collections().iter().map(|info| info.count).sum();
    if records != header.records {
        return Err(Stop::Failed(Error::corrupt("the new database lacks records")));
    }
    database.close()?;
    storage.release()?;
    Ok(verified.blocks)
}

fn read_all(
    header: &Header,
    reader: &mut FrameReader<'_>,
    transaction: &mut ExclusiveTransaction<'_>,
    max_key_bytes: usize,
    control: &mut Control<'_>,
) -> Flow<()> {
    let mut last_name: Option<String> = None;
    for _ in 0..header.collections {
        let name = read_text(reader, MAX_NAME_BYTES.min(max_key_bytes), "the name of a collection")?;
        if last_name.is_some_and(|last| last >= name) {
            return Err(reader.damaged("the collections are not in order").into());
        }
        let key_codec = read_text(reader, MAX_CODEC_BYTES, "a codec id")?;
        let value_codec = read_text(reader, MAX_CODEC_BYTES, "a codec id")?;
        transaction.set_codecs(&name, &key_codec, &value_codec)?;
        read_records(reader, transaction, &name, max_key_bytes, control)?;
        control.collections += 1;
        last_name = Some(name);
    }
    let records = control.state.records;
    if records != header.records || (header.version == 0 && header.collections > 0) {
        return Err(reader.damaged("the header does not fit the data").into());
    }
    reader.finish(records)?;
    control.state.bytes = reader.bytes_read();
    Ok(())
}

fn read_text(reader: &mut FrameReader<'_>, max: usize, what: &str) -> Result<String> {
    let len = reader.read_len(max, what)?;
    let mut bytes = Vec::new();
    reader.read(&mut bytes, len)?;
    String::from_utf8(bytes).map_err(|_| reader.damaged(format!("{what} is not UTF-8")))
}

/// Reads the length of a value and the expiry of its record, 0 for none.
fn read_head(reader: &mut FrameReader<'_>) -> Result<(usize, u64)> {
    let head = reader.read_len(MAX_VALUE_BYTES << 1 | 1, "a value")?;
    let expires = if head & 1 == 0 { 0 } else { reader.read_varint()? };
    if head & 1 == 1 && expires == 0 {
        return Err(reader.damaged("a record expires at no time"));
    }
    Ok((head >> 1, expires))
}

fn read_records(
    reader: &mut FrameReader<'_>,
    transaction: &mut ExclusiveTransaction<'_>,
    name: &str,
    max_key_bytes: usize,
    control: &mut Control<'_>,
) -> Flow<()> {
    let count = reader.read_varint()?;
    let (mut key, mut last_key) = (Vec::new(), Vec::new());
    for number in 0..count {
        let key_len = reader.read_len(max_key_bytes, "a key")?;
        std::mem::swap(&mut key, &mut last_key);
        key.clear();
        reader.read(&mut key, key_len)?;
        if number > 0 && last_key >= key {
            return Err(reader.damaged("the keys are not in order").into());
        }
        let (value_len, expires) = read_head(reader)?;
        if expires != 0 && key.len() + HINT_BYTES > max_key_bytes {
            return Err(reader.damaged("the key of a record that expires is too long").into());
        }
        let mut is_cancelled = false;
        let stored = transaction.set_from(name, &key, expires, value_len, &mut |into, len| {
            reader.read(into, len)?;
            is_cancelled |= control.at(reader.frames(), reader.bytes_read()).is_err();
            // Any error will do: it only serves to leave the transaction.
            if is_cancelled { Err(Error::Closed) } else { Ok(()) }
        });
        if is_cancelled {
            return Err(Stop::Cancelled);
        }
        stored?;
        control.state.records += 1;
    }
    Ok(())
}

/// A storage that holds back the front of the data file.
pub(super) struct HeldStorage {
    target: Arc<dyn Storage>,
    data: Arc<HeldFile>,
}

impl HeldStorage {
    /// Creates the data file, which must be missing or empty.
    pub(super) fn new(target: Arc<dyn Storage>) -> Result<Self> {
        let file = target.open(DATA_FILE, true)?;
        if !file.is_empty()? {
            return Err(Error::AlreadyExists {
                what: format!("the file {DATA_FILE} of the new database").into(),
            });
        }
        let front = Mutex::new(Vec::new());
        let data = Arc::new(HeldFile { file, front });
        Ok(Self { target, data })
    }

    /// Writes the sectors that were held back. Both superblocks agree by now, so any part of them that survives
    /// a power failure suffices.
    pub(super) fn release(&self) -> Result<()> {
        self.data.file.write_at(0, &self.data.front())?;
        self.data.file.flush()
    }
}

impl Storage for HeldStorage {
    fn open(&self, name: &str, create: bool) -> Result<Arc<dyn StorageFile>> {
        if name == DATA_FILE {
            return Ok(Arc::clone(&self.data) as Arc<dyn StorageFile>);
        }
        self.target.open(name, create)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.target.exists(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.target.remove(name)
    }
}

struct HeldFile {
    file: Arc<dyn StorageFile>,
    /// The first bytes of the file, at most the length of the superblocks.
    front: Mutex<Vec<u8>>,
}

/// Length of the part of `len` bytes at `offset` that belongs to the front.
fn front_part(offset: u64, len: usize) -> usize {
    len.min(AREA_BYTES.saturating_sub(offset) as usize)
}

impl HeldFile {
    fn front(&self) -> MutexGuard<'_, Vec<u8>> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageFile for HeldFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let (held, rest) = into.split_at_mut(front_part(offset, into.len()));
        if !held.is_empty() {
            let front = self.front();
            let start = offset as usize;
            let there = front.get(start..).unwrap_or_default();
            let there = &there[..held.len().min(there.len())];
            held[..there.len()].copy_from_slice(there);
            held[there.len()..].fill(0);
            if there.len() < held.len() && self.file.len()? < AREA_BYTES {
                return Err(Error::io(format!("reading {DATA_FILE} at {offset}"), "end of file"));
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.file.read_at(offset + held.len() as u64, rest)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let (held, rest) = from.split_at(front_part(offset, from.len()));
        if !held.is_empty() {
            let mut front = self.front();
            let (start, end) = (offset as usize, offset as usize + held.len());
            if front.len() < end {
                front.resize(end, 0);
            }
            front[start..end].copy_from_slice(held);
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.file.write_at(offset + held.len() as u64, rest)
    }

    fn flush(&self) -> Result<()> {
        self.file.flush()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.len()?.max(self.front().len() as u64))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.front().truncate(usize::try_from(len).unwrap_or(usize::MAX));
        self.file.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    #[test]
    fn the_front_is_held_back_until_it_is_released() {
        let memory = MemoryStorage::new();
        let held = HeldStorage::new(Arc::new(memory.clone())).unwrap();
        let file = held.open(DATA_FILE, false).unwrap();
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| at as u8 | 1).collect();
        let mut read = vec![0; 10_000];
        file.write_at(4096, &bytes[4096..4196]).unwrap();
        assert_eq!(file.len().unwrap(), 4196);
        assert!(file.read_at(4096, &mut read[..101]).is_err());
        file.write_at(0, &bytes).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        file.read_at(0, &mut read).unwrap();
        assert_eq!(read, bytes);
        file.flush().unwrap();
        assert!(memory.files()[DATA_FILE][..8192].iter().all(|byte| *byte == 0));
        held.release().unwrap();
        assert_eq!(memory.files()[DATA_FILE], bytes);
    }

    #[test]
    fn unwritten_bytes_are_zero() {
        let held = HeldStorage::new(Arc::new(MemoryStorage::new())).unwrap();
        let file = held.open(DATA_FILE, false).unwrap();
        file.write_at(9000, b"far").unwrap();
        let mut read = [1; 9003];
        file.read_at(0, &mut read).unwrap();
        assert!(read[..9000].iter().all(|byte| *byte == 0) && read[9000..] == *b"far");
        file.set_len(100).unwrap();
        assert_eq!(file.len().unwrap(), 100);
    }
}
