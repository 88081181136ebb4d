//! Salvage of a damaged log: all intact records, and what is known about the commits between them.

use super::record::{self, RecordInfo};
use super::{COPY_BYTES, HALF_HEADER_BYTES, HalfHeader, LogStart, Operation, Operations, Position, check_presence};
use crate::cipher::Cipher;
use crate::storage::StorageFile;

/// Size of the pieces that are read one by one if reading the whole file fails.
const PIECE_BYTES: usize = 4096;
/// Bytes that the search for records may check, as a multiple of the half: limits the cost of
/// hostile files.
const SEARCH_FACTOR: usize = 4;
/// Maximum length of a log file.
const MAX_BYTES: u64 = 1 << 30;

/// An intact record.
pub(crate) struct SalvagedRecord {
    /// Version of its last commit.
    pub version: u64,
    pub payload: Vec<u8>,
    /// Commits missing from the log between the previous record and this one.
    pub missing: u64,
    /// Damage precedes this record. Otherwise the missing commits bypassed the log, into a
    /// checkpoint.
    pub after_damage: bool,
    /// The record and the blocks it refers to were flushed.
    pub is_confirmed: bool,
}

/// The remains of a log.
#[derive(Default)]
pub(crate) struct SalvagedLog {
    pub records: Vec<SalvagedRecord>,
    /// Something that was durable, or may have been, cannot be read.
    pub is_damaged: bool,
}

/// Reads all records after `start`, or all records of the log if there is no start or the log is of
/// another time. Unreadable parts count as damage, as does what `start` states and the log lacks.
pub(crate) fn salvage(file: &dyn StorageFile, start: Option<&LogStart>) -> SalvagedLog {
    let (bytes, is_unreadable) = read(file);
    let mut log = match start {
        Some(start) => behind(&bytes, start, check_presence(file, start).is_ok()),
        None => without_start(&bytes, None, &Cipher::default()),
    };
    log.is_damaged |= is_unreadable;
    log
}

/// The records behind the start. If the log is not the one that the start is about, those of its own
/// that are newer.
fn behind(bytes: &[u8], start: &LogStart, is_present: bool) -> SalvagedLog {
    let halves = Halves::split(bytes, start.half_bytes as usize, Some(start.database_id));
    let mut log = halves.records(start.position, Some(start.version), &start.cipher);
    let reached = |log: &SalvagedLog| log.records.last().map_or(start.version, |record| record.version);
    if log.records.is_empty() {
        let mut other = without_start(bytes, Some(start), &start.cipher);
        if reached(&other) > start.version {
            if let Some(first) = other.records.first_mut() {
                let commits = Operations::new(&first.payload).filter(|one| matches!(one, Ok(Operation::End)));
                let before = first.version.saturating_sub(commits.count() as u64);
                first.missing = before.saturating_sub(start.version);
                first.after_damage = true;
            }
            other.is_damaged = true;
            log = other;
        }
    }
    log.is_damaged |= !is_present || reached(&log) < start.reaches;
    log
}

fn read(file: &dyn StorageFile) -> (Vec<u8>, bool) {
    let len = file.len().unwrap_or(0).min(MAX_BYTES) as usize;
    let mut bytes = vec![0; len];
    let mut is_unreadable = false;
    if len > 0 && file.read_at(0, &mut bytes).is_err() {
        for (number, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
            if file.read_at((number * PIECE_BYTES) as u64, piece).is_err() {
                piece.fill(0);
                is_unreadable = true;
            }
        }
    }
    (bytes, is_unreadable)
}

fn header_at(bytes: &[u8], at: usize) -> Option<HalfHeader> {
    bytes.get(at..)?.first_chunk().and_then(HalfHeader::decode)
}

/// Start of the second half, found by its header.
fn half_bytes(bytes: &[u8]) -> Option<usize> {
    let is_second = |at: &usize| header_at(bytes, *at).is_some_and(|header| header.half == 1);
    let at = (COPY_BYTES..bytes.len()).step_by(COPY_BYTES).find(is_second)?;
    let salt = header_at(bytes, at)?.salt;
    // A single copy is the second one if records follow it directly.
    let records_follow = |at: usize| {
        bytes
            .get(at..)
            .is_some_and(|rest| record::claimed_len(salt, rest).is_some())
    };
    if !is_second(&(at + COPY_BYTES)) && records_follow(at + COPY_BYTES) {
        return Some(at - COPY_BYTES);
    }
    Some(at)
}

fn without_start(bytes: &[u8], owner: Option<&LogStart>, cipher: &Cipher) -> SalvagedLog {
    // If no second half was started, the length of the first is unknown.
    let stated = owner.map(|owner| owner.half_bytes as usize);
    let half_bytes = stated.or_else(|| half_bytes(bytes)).unwrap_or(MAX_BYTES as usize / 2);
    let halves = Halves::split(bytes, half_bytes, owner.map(|owner| owner.database_id));
    let continues = |header: &HalfHeader| header.from.salt != header.salt;
    let first = |header: &HalfHeader| (Position::first(header.half, header.salt), Some(header.base_version));
    let (start, version) = match &halves.headers {
        [Some(a), Some(b)] if a.from.salt == b.salt => first(b),
        [Some(a), Some(b)] if b.from.salt == a.salt || a.base_version >= b.base_version => first(a),
        [Some(_), Some(b)] => first(b),
        // The previous half lost its header; this header knows its salt.
        [Some(header), None] | [None, Some(header)] if continues(header) => {
            (Position::first(1 - header.half, header.from.salt), None)
        }
        [Some(header), None] | [None, Some(header)] => first(header),
        [None, None] => {
            return SalvagedLog {
                records: Vec::new(),
                is_damaged: bytes.iter().any(|byte| *byte != 0),
            };
        }
    };
    halves.records(start, version, cipher)
}

struct Halves<'a> {
    /// As far as the file reaches.
    bytes: [&'a [u8]; 2],
    /// Length of a half as configured: no payload exceeds it.
    half_bytes: usize,
    headers: [Option<HalfHeader>; 2],
}

impl<'a> Halves<'a> {
    fn split(bytes: &'a [u8], half_bytes: usize, database_id: Option<u128>) -> Self {
        let (first, second) = bytes.split_at(half_bytes.min(bytes.len()));
        let bytes = [first, &second[..half_bytes.min(second.len())]];
        let header = |half: usize| {
            let copies = [0, COPY_BYTES].into_iter();
            copies
                .filter_map(|at| header_at(bytes[half], at))
                .find(|header| usize::from(header.half) == half)
        };
        let ours = |header: &HalfHeader| database_id.is_none_or(|id| id == header.database_id);
        Self {
            bytes,
            half_bytes,
            headers: [header(0).filter(ours), header(1).filter(ours)],
        }
    }

    fn records(&self, start: Position, version: Option<u64>, cipher: &Cipher) -> SalvagedLog {
        let mut chain = Chain {
            log: SalvagedLog::default(),
            end: start,
            version,
            is_behind_damage: false,
        };
        let mut half = usize::from(start.half & 1);
        chain.half(self.bytes[half], self.half_bytes, cipher);
        for _ in 0..2 {
            half = 1 - half;
            let Some(header) = &self.headers[half] else {
                // A half that was never started is empty.
                let mut front = self.bytes[half].iter().take(HALF_HEADER_BYTES as usize);
                chain.log.is_damaged |= front.any(|byte| *byte != 0);
                break;
            };
            if header.from.salt != chain.end.salt || header.salt == chain.end.salt {
                break;
            }
            chain.go_on(header);
            chain.half(self.bytes[half], self.half_bytes, cipher);
        }
        chain.log
    }
}

struct Intact {
    offset: u32,
    end: u32,
    info: RecordInfo,
    crc: u32,
    payload: Vec<u8>,
    commits: u64,
}

/// All intact records of the half with this salt, in file order.
fn intact(bytes: &[u8], half_bytes: usize, cipher: &Cipher, salt: u64, from: u32) -> Vec<Intact> {
    let mut found = Vec::new();
    let mut budget = bytes.len().saturating_mul(SEARCH_FACTOR);
    let from = from.max(HALF_HEADER_BYTES) as usize;
    // A damaged header may name any offset.
    let mut at = from.checked_next_multiple_of(record::ALIGN).unwrap_or(usize::MAX);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let taken = record::claimed_len(salt, rest)
            .filter(|len| *len <= rest.len() && *len <= budget)
            .and_then(|len| {
                budget -= len;
                let record = record::decode(salt, half_bytes, cipher, rest)?;
                let operations: Result<Vec<_>, _> = Operations::new(&record.payload).collect();
                let ends = operations.ok()?.into_iter().filter(|one| *one == Operation::End);
                let commits = ends.count() as u64;
                found.push(Intact {
                    offset: at as u32,
                    end: (at + record.len) as u32,
                    info: record.info,
                    crc: record.crc,
                    payload: record.payload,
                    commits,
                });
                Some(record.len)
            });
        at += taken.unwrap_or(record::ALIGN);
    }
    found
}

/// The records found so far, and where they end.
struct Chain {
    log: SalvagedLog,
    end: Position,
    version: Option<u64>,
    is_behind_damage: bool,
}

impl Chain {
    /// Adds the records of one half. Past a break in the chain it continues only if a later record
    /// proves that the broken part was durable: records left behind a torn one by a power cut were
    /// never part of the log.
    fn half(&mut self, bytes: &[u8], half_bytes: usize, cipher: &Cipher) {
        let list = intact(bytes, half_bytes, cipher, self.end.salt, self.end.offset);
        let mut proven: Vec<u32> = list.iter().map(|found| found.info.flushed_to).collect();
        for index in (1..proven.len()).rev() {
            proven[index - 1] = proven[index - 1].max(proven[index]);
        }
        let flushed_to = proven.first().copied().unwrap_or(0);
        for (found, proven) in list.into_iter().zip(proven) {
            let follows = found.offset == self.end.offset && found.info.previous_crc == self.end.crc;
            let before = found.info.version.checked_sub(found.commits);
            let missing = before.and_then(|before| before.checked_sub(self.version.unwrap_or(before)));
            let (true, Some(missing)) = (follows || proven > self.end.offset, missing) else {
                break;
            };
            self.log.is_damaged |= !follows;
            self.log.records.push(SalvagedRecord {
                version: found.info.version,
                payload: found.payload,
                missing,
                after_damage: !follows || self.is_behind_damage,
                is_confirmed: found.end <= flushed_to,
            });
            self.is_behind_damage = false;
            self.version = Some(found.info.version);
            self.end.offset = found.end;
            self.end.crc = found.crc;
        }
    }

    /// Continues in the half with this header, which was started after a flushed checkpoint.
    fn go_on(&mut self, header: &HalfHeader) {
        for record in &mut self.log.records {
            record.is_confirmed = true;
        }
        self.is_behind_damage = header.from != self.end;
        self.log.is_damaged |= self.is_behind_damage;
        self.end = Position::first(header.half, header.salt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_begins_behind_the_last_offset() {
        let bytes = [0; 4096];
        for from in [4097, u32::MAX - 7, u32::MAX - 6, u32::MAX] {
            assert!(
                intact(&bytes, bytes.len(), &Cipher::default(), 0, from).is_empty(),
                "{from}"
            );
        }
    }
}
