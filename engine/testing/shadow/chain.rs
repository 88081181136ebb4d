//! The records of the log that a superblock leads to, and the values that they name.

use super::Files;
use super::reach::{Access, BlockId, Reach, Role};
use crate::block::checksum::{self, Hasher};
use crate::block::lz4;
use crate::cipher::{Cipher, Domain, NONCE_BYTES, TAG_BYTES};
use crate::log::{LOG_FILE, Operation, Operations, Position};

const HALF_HEADER_BYTES: u32 = 1024;
const COPY_BYTES: usize = 512;
const RECORD_HEADER_BYTES: usize = 40;
const TAG: u32 = 0x4D4C_5231;

/// The log as one superblock sees it.
pub(super) struct Chain {
    pub half_bytes: u32,
    pub database_id: u128,
    pub at: Position,
    /// Values that the records name.
    pub named: Vec<BlockId>,
    /// Bytes of the file that the way to the last record takes, by start and end.
    pub bytes: Vec<(u64, u64)>,
    pub records: u64,
    pub switches: u64,
    /// CRC of a record at the end that does not count, because blocks that it names are missing.
    void: Option<u32>,
}

struct Record {
    previous_crc: u32,
    crc: u32,
    len: u32,
    payload: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

impl Chain {
    pub(super) fn new(half_bytes: u32, database_id: u128, at: Position) -> Self {
        Self {
            half_bytes,
            database_id,
            at,
            named: Vec::new(),
            bytes: Vec::new(),
            records: 0,
            switches: 0,
            void: None,
        }
    }

    fn start_of_half(&self, half: u8) -> u64 {
        u64::from(half) * u64::from(self.half_bytes)
    }

    /// Follows the log to its end. Holds what the records name. Where blocks are missing, the log
    /// ends if it is `found` by an opening; otherwise that is a problem.
    pub(super) fn advance(
        &mut self,
        reach: &mut Reach,
        access: &Access<'_>,
        is_found: bool,
        problems: &mut Vec<String>,
    ) {
        if self.half_bytes == 0 {
            return;
        }
        loop {
            let from = self.start_of_half(self.at.half) + u64::from(self.at.offset);
            match self.record(access.files, access.cipher, from) {
                Some(record) if self.void == Some(record.crc) => return,
                Some(record) => {
                    let mut missing = Vec::new();
                    let held = hold_named(&record.payload, reach, access, &mut missing);
                    if !missing.is_empty() {
                        for id in held {
                            reach.release(id);
                        }
                        self.void = Some(record.crc);
                        if !is_found {
                            problems.extend(missing.into_iter().map(|what| format!("named by the log, {what}")));
                        }
                        return;
                    }
                    self.named.extend(held);
                    self.bytes.push((from, from + u64::from(record.len)));
                    self.records += 1;
                    self.void = None;
                    self.at.offset += record.len;
                    self.at.crc = record.crc;
                }
                None => {
                    let Some((next, header)) = self.next_half(access.files) else {
                        return;
                    };
                    // A header without a record, for which there was no space, may be replaced.
                    let before = std::mem::replace(&mut self.at, next);
                    let first = self.start_of_half(next.half) + u64::from(next.offset);
                    if self.record(access.files, access.cipher, first).is_none() {
                        self.at = before;
                        return;
                    }
                    self.bytes.push((header, header + COPY_BYTES as u64));
                    self.switches += 1;
                }
            }
        }
    }

    /// The intact record at this byte that continues the chain.
    fn record(&self, files: &dyn Files, cipher: &Cipher, from: u64) -> Option<Record> {
        let end = self.start_of_half(self.at.half) + u64::from(self.half_bytes);
        let header = files.read(LOG_FILE, from, RECORD_HEADER_BYTES);
        if header.len() < RECORD_HEADER_BYTES || word(&header, 0) != self.at.salt as u32 ^ TAG {
            return None;
        }
        let stored_len = word(&header, 4) as usize;
        if from + (RECORD_HEADER_BYTES + stored_len) as u64 > end {
            return None;
        }
        let mut stored = files.read(LOG_FILE, from + RECORD_HEADER_BYTES as u64, stored_len);
        let mut hasher = Hasher::new();
        hasher.update(&self.at.salt.to_le_bytes());
        hasher.update(&header[..36]);
        hasher.update(&stored);
        let crc = hasher.finalize();
        let raw_len = word(&header, 8);
        if stored.len() < stored_len || crc != word(&header, 36) || raw_len > self.half_bytes {
            return None;
        }
        let mut codec = header[32];
        if cipher.is_on() {
            let data = [&self.at.salt.to_le_bytes()[..], &header[..36]];
            if codec & 2 == 0 || !cipher.open(Domain::LogRecord, &data, &mut stored) {
                return None;
            }
            codec ^= 2;
            stored = stored[NONCE_BYTES..stored.len() - TAG_BYTES].to_vec();
        }
        let payload = match codec {
            0 if stored.len() == raw_len as usize => stored,
            1 => lz4::expand(&stored, raw_len as usize, |len| vec![0; len])?,
            _ => return None,
        };
        let record = Record {
            previous_crc: word(&header, 12),
            crc,
            len: (RECORD_HEADER_BYTES + stored_len).next_multiple_of(8) as u32,
            payload,
        };
        (record.previous_crc == self.at.crc).then_some(record)
    }

    /// The beginning of the other half, if it continues exactly here, and the byte where the copy of
    /// the header stands that says so.
    fn next_half(&self, files: &dyn Files) -> Option<(Position, u64)> {
        let half = 1 - self.at.half;
        let start = self.start_of_half(half);
        let copies = files.read(LOG_FILE, start, 2 * COPY_BYTES);
        let is_valid = |(_, copy): &(usize, &[u8])| {
            copy.len() == COPY_BYTES
                && copy.starts_with(b"MANGRLOG")
                && copy[10] == half
                && checksum::hash(&copy[..508]) == word(copy, 508)
        };
        let (number, header) = copies.chunks(COPY_BYTES).enumerate().find(is_valid)?;
        let id = u128::from(long(header, 16)) | u128::from(long(header, 24)) << 64;
        let salt = long(header, 32);
        let continues = id == self.database_id
            && long(header, 40) == self.at.salt
            && word(header, 12) == self.at.offset
            && word(header, 56) == self.at.crc
            && salt != self.at.salt;
        let next = Position {
            half,
            offset: HALF_HEADER_BYTES,
            crc: salt as u32,
            salt,
        };
        continues.then_some((next, start + (number * COPY_BYTES) as u64))
    }
}

/// Holds the values that a record names.
fn hold_named(payload: &[u8], reach: &mut Reach, access: &Access<'_>, missing: &mut Vec<String>) -> Vec<BlockId> {
    let mut held = Vec::new();
    for operation in Operations::new(payload) {
        if let Ok(Operation::SetOutOfLine {
            collection,
            value_len,
            reference,
            ..
        }) = operation
        {
            let role = Role::Value {
                owner: collection,
                len: value_len,
            };
            held.extend(reach.hold(access, &reference, role, missing));
        }
    }
    held
}
