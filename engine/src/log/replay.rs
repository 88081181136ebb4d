//! Replay: reads every record from a position up to the first torn one.
//!
//! A torn tail is the normal result of a power cut and is ignored. Damage before flushed records is
//! an error: each record states how far its half was flushed when it was written, so an intact
//! record after a broken one proves a loss if it states that the broken one was durable.

use super::{COPY_BYTES, HALF_HEADER_BYTES, HalfHeader, Position, record};
use crate::cipher::Cipher;
use crate::error::{Error, Message, Result};
use crate::storage::StorageFile;

/// Bytes that the search for records after a broken one may check, as a multiple of the half:
/// limits the cost of hostile files.
const SEARCH_FACTOR: usize = 4;

/// The commits of one record.
pub(crate) struct ReplayRecord {
    pub version: u64,
    pub payload: Vec<u8>,
    start: Position,
    end: Position,
    /// The record and the blocks it refers to were flushed before a later record was written.
    pub confirmed: bool,
}

/// Content of the log.
pub(crate) struct Replay {
    pub records: Vec<ReplayRecord>,
    pub end: Position,
    /// Position before the log switched to its last half; `end` itself if unknown.
    pub came_from: Position,
    /// CRC of a record found at the end that does not count.
    pub void: Option<u32>,
}

impl Replay {
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

impl Replay {
    /// A log without records at `position`.
    pub(crate) fn empty(position: Position) -> Self {
        Self {
            records: Vec::new(),
            end: position,
            came_from: position,
            void: None,
        }
    }
}

/// One half, read into memory.
struct Half {
    bytes: Vec<u8>,
    header: Option<HalfHeader>,
}

fn read_half(file: &dyn StorageFile, half: u8, half_bytes: u32) -> Result<Half> {
    let start = u64::from(half) * u64::from(half_bytes);
    let end = file.len()?.min(start + u64::from(half_bytes));
    let mut bytes = vec![0; end.saturating_sub(start) as usize];
    if !bytes.is_empty() {
        file.read_at(start, &mut bytes)?;
    }
    let copy = |at: usize| {
        bytes
            .get(at..)?
            .first_chunk::<COPY_BYTES>()
            .and_then(HalfHeader::decode)
    };
    let header = copy(0)
        .or_else(|| copy(COPY_BYTES))
        .filter(|header| header.half == half);
    Ok(Half { bytes, header })
}

/// Reads all records after `start`, writing nothing.
///
/// # Errors
/// [`Error::Corrupt`] if durable records are damaged, and storage errors.
pub(crate) fn replay(
    file: &dyn StorageFile,
    half_bytes: u32,
    database_id: u128,
    cipher: &Cipher,
    start: Position,
) -> Result<Replay> {
    let mut replay = Replay::empty(start);
    let mut half = read_half(file, start.half, half_bytes)?;
    read_records(&half.bytes, half_bytes as usize, cipher, &mut replay)?;
    // From the older checkpoint's position the log may continue in the other half, then again in
    // the first.
    for _ in 0..2 {
        half = read_half(file, 1 - replay.end.half, half_bytes)?;
        let header = half.header.filter(|header| header.database_id == database_id);
        let Some(header) = header.filter(|header| header.from.salt == replay.end.salt) else {
            break;
        };
        if header.from != replay.end {
            // The next half continues records that are missing here.
            return Err(damaged(replay.end));
        }
        replay.came_from = replay.end;
        replay.end = Position::first(header.half, header.salt);
        read_records(&half.bytes, half_bytes as usize, cipher, &mut replay)?;
    }
    Ok(replay)
}

fn damaged(at: Position) -> Error {
    let mut what = Message::default();
    what.text("the log is damaged at offset ").number(at.offset.into());
    what.text(" of half ").number(at.half.into());
    what.text(", in front of commits that were durable");
    Error::corrupt(what.end())
}

/// Appends the records of one half from `replay.end` on.
fn read_records(bytes: &[u8], half_bytes: usize, cipher: &Cipher, replay: &mut Replay) -> Result<()> {
    let first = replay.records.len();
    let salt = replay.end.salt;
    // No payload exceeds the length of a half: larger transactions bypass the log.
    let max_raw_bytes = half_bytes;
    let mut flushed_to = 0;
    while let Some(found) = bytes
        .get(replay.end.offset as usize..)
        .and_then(|rest| record::decode(salt, max_raw_bytes, cipher, rest))
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
            payload: found.payload,
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
    let mut budget = bytes.len() * SEARCH_FACTOR;
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
        if let Some(found) = record::decode(end.salt, half_bytes, cipher, rest)
            && found.info.flushed_to > end.offset
        {
            return true;
        }
    }
    false
}
