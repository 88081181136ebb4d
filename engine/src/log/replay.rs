//! Replay: finds every record from a position up to the first torn one, and reads their payloads
//! one after the other.
//!
//! A torn tail is the normal result of a power cut and is ignored. Damage before flushed records is
//! an error: each record states how far its half was flushed when it was written, so an intact
//! record after a broken one proves a loss if it states that the broken one was durable.
//!
//! Payloads are not cached: a compressed log may expand to many times the memory that its commits
//! took when they were made.

use super::{HALF_HEADER_BYTES, HalfHeader, Position, read_header, record};
use crate::cipher::Cipher;
use crate::error::{Error, Result};
use crate::storage::StorageFile;

/// Bytes that the search for records after a broken one may check, as a multiple of the half:
/// limits the cost of hostile files.
const SEARCH_FACTOR: usize = 4;

/// A record with one or more commits.
#[derive(Clone, Copy)]
pub(crate) struct ReplayRecord {
    pub version: u64,
    start: Position,
    end: Position,
    /// The record and the blocks it refers to were flushed before a later record was written.
    pub confirmed: bool,
}

/// Content of the log behind a position.
pub(crate) struct Replay<'f> {
    records: Vec<ReplayRecord>,
    pub start: Position,
    pub end: Position,
    /// Position before the log switched to its last half; `end` itself if unknown.
    pub came_from: Position,
    /// The half in which the log ends has its header.
    pub has_header: bool,
    /// CRC of a record found at the end that does not count.
    pub void: Option<u32>,
    source: Option<Source<'f>>,
}

/// The file that payloads are read from.
struct Source<'f> {
    file: &'f dyn StorageFile,
    half_bytes: u32,
    cipher: Cipher,
    held: Option<(u8, Vec<u8>)>,
}

impl Replay<'_> {
    /// A log without records at `position`.
    pub(crate) fn empty(position: Position) -> Self {
        Self {
            records: Vec::new(),
            start: position,
            end: position,
            came_from: position,
            has_header: false,
            void: None,
            source: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Version of the last commit that is known to have been flushed; 0 if none is.
    pub(super) fn durable_version(&self) -> u64 {
        let confirmed = self.records.iter().filter(|record| record.confirmed);
        confirmed.map(|record| record.version).max().unwrap_or(0)
    }

    /// Reads the record with this number, and its payload; `None` behind the last one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the payload does not expand, and storage errors.
    pub(crate) fn read(&mut self, number: usize) -> Result<Option<(ReplayRecord, Vec<u8>)>> {
        let (Some(&record), Some(source)) = (self.records.get(number), &mut self.source) else {
            return Ok(None);
        };
        let Position { half, offset, salt, .. } = record.start;
        let bytes = match source.held.take() {
            Some((held, bytes)) if held == half => bytes,
            // Freed before the other half is read.
            _ => read_half(source.file, half, source.half_bytes)?,
        };
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let found = record::decode(salt, source.half_bytes as usize, &source.cipher, rest);
        source.held = Some((half, bytes));
        match found {
            Some(found) if found.crc == record.end.crc => Ok(Some((record, found.payload))),
            _ => Err(damaged(record.start)),
        }
    }

    /// Ends at a position where the log went on in the other half. The records from there on do not
    /// count: one of them had lost its blocks, and nothing has overwritten it since.
    fn end_at(&mut self, position: Position) -> bool {
        let Some(count) = self.records.iter().position(|record| record.start == position) else {
            return false;
        };
        self.records.truncate(count);
        self.end = position;
        true
    }

    /// Keeps the first `count` records: a power cut lost the blocks that the next one refers to.
    pub(crate) fn truncate(&mut self, count: usize) -> Result<()> {
        if let Some(first) = self.records.get(count) {
            if first.start.salt != self.end.salt {
                // The other half was started after a checkpoint that contained this record.
                return Err(damaged(first.start));
            }
            self.end = first.start;
            self.void = Some(first.end.crc);
            self.records.truncate(count);
        }
        Ok(())
    }
}

/// Reads one half into memory.
pub(super) fn read_half(file: &dyn StorageFile, half: u8, half_bytes: u32) -> Result<Vec<u8>> {
    let start = u64::from(half) * u64::from(half_bytes);
    let end = file.len()?.min(start + u64::from(half_bytes));
    let mut bytes = vec![0; end.saturating_sub(start) as usize];
    if !bytes.is_empty() {
        file.read_at(start, &mut bytes)?;
    }
    Ok(bytes)
}

/// Finds all records after `start`, writing nothing.
///
/// # Errors
/// [`Error::Corrupt`] if durable records are damaged, and storage errors.
pub(crate) fn replay<'f>(
    file: &'f dyn StorageFile,
    half_bytes: u32,
    database_id: u128,
    cipher: &Cipher,
    start: Position,
) -> Result<Replay<'f>> {
    let mut replay = Replay {
        source: Some(Source {
            file,
            half_bytes,
            cipher: cipher.clone(),
            held: None,
        }),
        ..Replay::empty(start)
    };
    let header_of = |bytes: &[u8], half| read_header(bytes, half).filter(|header| header.database_id == database_id);
    let mut bytes = read_half(file, start.half, half_bytes)?;
    let begun = header_of(&bytes, start.half);
    replay.has_header = begun.is_some_and(|header| header.salt == start.salt);
    find_records(&bytes, half_bytes as usize, cipher, &mut replay)?;
    // From the older checkpoint's position the log may continue in the other half, then again in
    // the first.
    for _ in 0..2 {
        let half = 1 - replay.end.half;
        drop(bytes);
        bytes = read_half(file, half, half_bytes)?;
        let header = header_of(&bytes, half).filter(|header| header.from.salt == replay.end.salt);
        let Some(header) = header else {
            break;
        };
        continue_in(&mut replay, &header)?;
        find_records(&bytes, half_bytes as usize, cipher, &mut replay)?;
    }
    Ok(replay)
}

/// Continues in the half that the log switched to.
fn continue_in(replay: &mut Replay<'_>, header: &HalfHeader) -> Result<()> {
    if header.from != replay.end && !replay.end_at(header.from) {
        // The next half continues records that are missing here.
        return Err(damaged(replay.end));
    }
    replay.came_from = replay.end;
    replay.end = Position::first(header.half, header.salt);
    replay.has_header = true;
    Ok(())
}

fn damaged(at: Position) -> Error {
    let Position { offset, half, .. } = at;
    Error::corrupt(format!(
        "the log is damaged at offset {offset} of half {half}, in front of commits that were durable"
    ))
}

/// Appends the records of one half from `replay.end` on.
pub(super) fn find_records(bytes: &[u8], half_bytes: usize, cipher: &Cipher, replay: &mut Replay<'_>) -> Result<()> {
    let first = replay.records.len();
    let salt = replay.end.salt;
    // No payload exceeds the length of a half: larger transactions bypass the log.
    let max_raw_bytes = half_bytes;
    let mut flushed_to = 0;
    while let Some(found) = bytes
        .get(replay.end.offset as usize..)
        .and_then(|rest| record::find(salt, max_raw_bytes, cipher, rest))
    {
        if found.info.previous_crc != replay.end.crc {
            break;
        }
        flushed_to = flushed_to.max(found.info.flushed_to);
        let start = replay.end;
        replay.end.offset += found.len as u32;
        replay.end.crc = found.crc;
        replay.records.push(ReplayRecord {
            version: found.info.version,
            start,
            end: replay.end,
            confirmed: false,
        });
    }
    for record in &mut replay.records[first..] {
        record.confirmed = record.end.offset <= flushed_to;
    }
    if was_durable_beyond(bytes, half_bytes, cipher, replay.end) {
        return Err(damaged(replay.end));
    }
    Ok(())
}

/// Whether an intact record after `end` states that the bytes at `end` were flushed.
fn was_durable_beyond(bytes: &[u8], half_bytes: usize, cipher: &Cipher, end: Position) -> bool {
    let mut budget = bytes.len().saturating_mul(SEARCH_FACTOR);
    let from = (end.offset as usize).max(HALF_HEADER_BYTES as usize);
    for at in (from..bytes.len()).step_by(record::ALIGN).skip(1) {
        let rest = &bytes[at..];
        let Some(len) = record::claimed_len(end.salt, rest) else {
            continue;
        };
        if len > rest.len() {
            continue;
        }
        if len > budget {
            return false;
        }
        budget -= len;
        if let Some(found) = record::find(end.salt, half_bytes, cipher, rest)
            && found.info.flushed_to > end.offset
        {
            return true;
        }
    }
    false
}
