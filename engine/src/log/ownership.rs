//! Whether a log is the one of the data file beside it, and whether it is all there.
//!
//! Files get lost, cut, mixed up with a copy from another day, or with those of another database.
//! Opening then must neither show an older state than both files together have, nor overwrite a
//! log that the data file does not lead to.

use super::replay::find_records;
use super::{HALF_HEADER_BYTES, HalfHeader, Position, Replay, Tail, read_header, record, replay};
use crate::cipher::Cipher;
use crate::error::{Error, Result};
use crate::storage::StorageFile;

/// Bytes read at once when looking for any content.
const PIECE_BYTES: u64 = 64 << 10;

/// The fields of a superblock that describe the log.
pub(crate) struct LogStart {
    pub half_bytes: u32,
    pub database_id: u128,
    pub cipher: Cipher,
    pub position: Position,
    /// Version of the last commit before `position`.
    pub version: u64,
    /// There are no records behind `position`.
    pub is_closed: bool,
    /// The half was flushed up to `position`.
    pub is_flushed: bool,
    /// Version to which the records have to lead; 0: any.
    pub reaches: u64,
}

/// Whether a file has no bytes but zeros: a log into which nothing was written.
pub(crate) fn is_empty(file: &dyn StorageFile) -> Result<bool> {
    is_zero_from(file, 0)
}

fn is_zero_from(file: &dyn StorageFile, mut at: u64) -> Result<bool> {
    let len = file.len()?;
    let mut piece = Vec::new();
    while at < len {
        piece.resize(PIECE_BYTES.min(len - at) as usize, 0);
        file.read_at(at, &mut piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

/// Checks that the log beside the newest superblock has the records that were in it when that was written.
///
/// # Errors
/// [`Error::Corrupt`] if it was cut, emptied or replaced, [`Error::NotADatabase`] if it is no log.
pub(crate) fn check_presence(file: &dyn StorageFile, newest: &LogStart) -> Result<()> {
    if newest.is_closed {
        // A crash may tear the headers while nothing follows them.
        let front = read_front(file, 0, newest.half_bytes)?;
        if file.len()? <= u64::from(HALF_HEADER_BYTES) || super::is_log_file(&front) {
            return Ok(());
        }
        return Err(Error::NotADatabase {
            file: super::LOG_FILE.into(),
        });
    }
    if !newest.is_flushed || continues(file, newest)? || leads_to(file, newest)? {
        return Ok(());
    }
    Err(Error::corrupt(
        "the file \"log\" lacks what was in it at the last checkpoint, and with that the newest commits: it was cut, emptied or replaced; \
         put the right one back, or recover what the files hold",
    ))
}

/// Checks that the superblock, from which the log was replayed up to `version`, leads to all commits
/// that the log has.
///
/// # Errors
/// [`Error::Corrupt`] if one of the files is older than the other, or of another database.
pub(crate) fn check_owner(file: &dyn StorageFile, start: &LogStart, replay: &Replay<'_>, version: u64) -> Result<()> {
    for half in [0, 1] {
        let front = read_front(file, half, start.half_bytes)?;
        let Some(header) = read_header(&front, half) else {
            continue;
        };
        if header.database_id != start.database_id {
            return Err(Error::corrupt(
                "the file \"log\" belongs to another database than \"data\"; put the right one back",
            ));
        }
        if [replay.start.salt, replay.came_from.salt, replay.end.salt].contains(&header.salt) {
            continue;
        }
        let reaches = durable_version(file, start, &header)?;
        if reaches > version {
            return Err(Error::corrupt(format!(
                "the file \"log\" has commits up to version {reaches}, but \"data\" leads to version {version} only: one of \
                 them is a copy from another time; put the right one back, or recover what they hold"
            )));
        }
    }
    Ok(())
}

/// The headers of a half.
fn read_front(file: &dyn StorageFile, half: u8, half_bytes: u32) -> Result<Vec<u8>> {
    let start = u64::from(half) * u64::from(half_bytes);
    let len = file.len()?.saturating_sub(start).min(u64::from(HALF_HEADER_BYTES));
    let mut bytes = vec![0; len as usize];
    if len > 0 {
        file.read_at(start, &mut bytes)?;
    }
    Ok(bytes)
}

/// Whether a record follows the superblock's position.
fn continues(file: &dyn StorageFile, start: &LogStart) -> Result<bool> {
    let Position {
        half,
        offset,
        crc,
        salt,
    } = start.position;
    let tail = Tail {
        at: u64::from(half) * u64::from(start.half_bytes) + u64::from(offset),
        salt,
        crc,
        half_bytes: start.half_bytes,
        cipher: start.cipher.clone(),
        void: None,
    };
    tail.has_grown(file)
}

/// Whether the half has its header, and the record that ends at the superblock's position; or the
/// other half continues from there, as then the log may be back in this one.
fn leads_to(file: &dyn StorageFile, start: &LogStart) -> Result<bool> {
    let Position {
        half,
        offset,
        crc,
        salt,
    } = start.position;
    let other = read_header(&read_front(file, 1 - half, start.half_bytes)?, 1 - half);
    if other.is_some_and(|other| other.from == start.position) {
        return Ok(true);
    }
    let mut bytes = replay::read_half(file, half, start.half_bytes)?;
    // A full storage may have taken all of the last record but the zeros behind it.
    bytes.resize(bytes.len().next_multiple_of(record::ALIGN), 0);
    if bytes.len() < offset as usize || read_header(&bytes, half).is_none_or(|header| header.salt != salt) {
        return Ok(false);
    }
    // Records before the last one may be missing: a crash can take those that a checkpoint contains.
    let (first, end) = (HALF_HEADER_BYTES as usize, offset as usize);
    let ends_there = |at: usize| {
        let rest = bytes.get(at..end).unwrap_or_default();
        record::claimed_len(salt, rest) == Some(end - at)
            && record::find(salt, start.half_bytes as usize, &start.cipher, rest).is_some_and(|found| found.crc == crc)
    };
    Ok(end == first || (first..end).step_by(record::ALIGN).rev().any(ends_there))
}

/// Version of the last commit in a half that is known to have been flushed.
fn durable_version(file: &dyn StorageFile, start: &LogStart, header: &HalfHeader) -> Result<u64> {
    let half_bytes = start.half_bytes;
    let mut found = Replay::empty(Position::first(header.half, header.salt));
    let bytes = replay::read_half(file, header.half, half_bytes)?;
    // Damage in it matters to nobody.
    let _ = find_records(&bytes, half_bytes as usize, &start.cipher, &mut found);
    Ok(found.durable_version())
}

#[cfg(test)]
mod tests {
    use super::super::record::{HEADER_BYTES, RecordInfo};
    use super::*;
    use crate::storage::{MemoryStorage, Storage};

    /// A storage that had no space for the zeros behind the last record has taken all of it.
    #[test]
    fn a_log_is_there_up_to_the_last_byte_that_is_no_padding() {
        let first = Position::first(0, 77);
        let header = HalfHeader {
            half: 0,
            database_id: 7,
            salt: first.salt,
            from: Position::first(1, 5),
            base_version: 3,
        };
        for payload in [&b"abc"[..], b"abcdefgh"] {
            let mut bytes = [header.encode(), header.encode()].concat();
            let whole = bytes.len() + HEADER_BYTES + payload.len();
            let info = RecordInfo {
                previous_crc: first.crc,
                version: 4,
                session: 1,
                flushed_to: 0,
            };
            let cipher = Cipher::default();
            let crc = record::encode(first.salt, &info, payload, false, &cipher, &mut bytes);
            let start = LogStart {
                half_bytes: 8192,
                database_id: 7,
                cipher,
                position: Position {
                    offset: bytes.len() as u32,
                    crc,
                    ..first
                },
                version: 4,
                is_closed: false,
                is_flushed: true,
                reaches: 0,
            };
            for len in 0..=bytes.len() {
                let file = MemoryStorage::new().open("log", true).expect("memory works");
                file.write_at(0, &bytes[..len]).expect("memory works");
                let found = check_presence(&*file, &start);
                assert_eq!(found.is_ok(), len >= whole, "{len} of {} bytes: {found:?}", bytes.len());
            }
        }
    }
}
