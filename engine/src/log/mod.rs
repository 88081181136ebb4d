//! The write-ahead log: commits between two checkpoints, in a file of two alternating halves.
//!
//! ```text
//! half h begins at byte h * half_bytes: two copies of its header, 512 bytes each, then records (see `record`)
//!   0  [8]  magic "MANGRLOG"
//!   8  u16  format version, 4
//!  10  u8   half; 11 u8 0
//!  12  u32  offset in the other half at which its last record ended
//!  16  u128 database id
//!  32  u64  salt of this half
//!  40  u64  salt of the half that it continues
//!  48  u64  version of the last commit before it
//!  56  u32  CRC of the last record before it
//!  60  [448] 0
//! 508  u32  CRC32 of bytes 0..508
//! ```
//! A superblock names a [`Position`]: the records from there on, and those in the half that
//! continues it, are newer than the checkpoint. Each record carries the checksum of its
//! predecessor, and the first of a half carries the half's salt, so stale bytes from an earlier use
//! of the half never count. A half is reused only after the second checkpoint since its last record
//! (invariant I16), so the older checkpoint still finds its log.

use std::sync::Arc;

use crate::block::checksum;
use crate::cipher::Cipher;
use crate::error::{Error, Result};
use crate::storage::StorageFile;
use record::RecordInfo;

mod flush;
mod operation;
mod ownership;
mod record;
mod replay;
mod salvage;

pub(crate) use flush::{GroupFlush, Turn, in_doubt, refusal};
pub(crate) use operation::{Operation, Operations};
pub(crate) use ownership::{LogStart, check_owner, check_presence, is_empty};
pub(crate) use replay::{Replay, replay};
pub(crate) use salvage::{SalvagedLog, SalvagedRecord, salvage};

/// Name of the log file.
pub(crate) const LOG_FILE: &str = "log";
const MAGIC: [u8; 8] = *b"MANGRLOG";
const FORMAT_VERSION: u16 = 4;
const COPY_BYTES: usize = 512;
/// Maximum number of zeros written after a record to allocate blocks ahead.
const MAX_AHEAD_BYTES: u64 = 1 << 20;
/// Longer changes go to the data file: the end of each half is reserved for one record of maximum
/// length.
const MAX_PAYLOAD_BYTES: usize = 4 << 20;
/// Length of the longest half.
pub(crate) const MAX_HALF_BYTES: u32 = 512 << 20;
/// Length of the shortest half.
pub(crate) const MIN_HALF_BYTES: u32 = 4096;
/// Length of both copies of a half's header.
const HALF_HEADER_BYTES: u32 = 2 * COPY_BYTES as u32;

/// The header of a half that is in the file, whatever database it belongs to.
fn read_header(bytes: &[u8], half: u8) -> Option<HalfHeader> {
    let copies = [0, COPY_BYTES].into_iter();
    let mut headers = copies.filter_map(|at| HalfHeader::decode(bytes.get(at..)?.first_chunk()?));
    headers.find(|header| header.half == half)
}

/// Whether a log file that starts with `front` is ours: it has our magic in a copy of the header,
/// or its first half was never started.
pub(crate) fn is_log_file(front: &[u8]) -> bool {
    let mut copies = [front, front.get(COPY_BYTES..).unwrap_or_default()].into_iter();
    copies.any(|copy| copy.starts_with(&MAGIC)) || front.iter().all(|byte| *byte == 0)
}

/// A position between two records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Position {
    pub half: u8,
    /// Offset in the half.
    pub offset: u32,
    /// CRC of the preceding record.
    pub crc: u32,
    /// Salt of the half.
    pub salt: u64,
}

impl Position {
    /// Position of the first record of a half.
    pub(crate) fn first(half: u8, salt: u64) -> Self {
        Self {
            half,
            offset: HALF_HEADER_BYTES,
            crc: salt as u32,
            salt,
        }
    }
}

/// Header of a half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct HalfHeader {
    half: u8,
    database_id: u128,
    salt: u64,
    /// Where the log ended in the other half.
    from: Position,
    base_version: u64,
}

impl HalfHeader {
    fn encode(&self) -> [u8; COPY_BYTES] {
        let mut bytes = [0; COPY_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(10, &[self.half]);
        put(12, &self.from.offset.to_le_bytes());
        put(16, &self.database_id.to_le_bytes());
        put(32, &self.salt.to_le_bytes());
        put(40, &self.from.salt.to_le_bytes());
        put(48, &self.base_version.to_le_bytes());
        put(56, &self.from.crc.to_le_bytes());
        let crc = checksum::hash(&bytes[..508]);
        bytes[508..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; COPY_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let valid = bytes[..8] == MAGIC
            && bytes[8..10] == FORMAT_VERSION.to_le_bytes()
            && bytes[10] < 2
            && checksum::hash(&bytes[..508]) == u32_at(508);
        valid.then(|| Self {
            half: bytes[10],
            database_id: u128::from(u64_at(16)) | u128::from(u64_at(24)) << 64,
            salt: u64_at(32),
            from: Position {
                half: 1 - bytes[10],
                offset: u32_at(12),
                crc: u32_at(56),
                salt: u64_at(40),
            },
            base_version: u64_at(48),
        })
    }
}

/// Mixes three words into one (splitmix64, Steele, Lea and Flood 2014).
pub(crate) fn mix(a: u64, b: u64, c: u64) -> u64 {
    let mut word = a ^ b.rotate_left(21) ^ c.rotate_left(42);
    word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

/// The log as seen by its only writer.
#[allow(clippy::struct_excessive_bools, reason = "they are independent")]
pub(crate) struct Log {
    file: Arc<dyn StorageFile>,
    half_bytes: u32,
    database_id: u128,
    session: u64,
    compress: bool,
    cipher: Cipher,
    /// Position of the next record.
    at: Position,
    /// Position before the log switched to this half.
    came_from: Position,
    /// The header of the half has not been written yet.
    unbegun: bool,
    /// The file may have records from before the log was emptied, if the process died before it cut them.
    has_remains: bool,
    /// Commits cannot be logged before a checkpoint: the log does not continue the state (see
    /// `database::open`).
    pub checkpoint_first: bool,
    /// CRC of a record found at the end of the log that does not count.
    void: Option<u32>,
    pub bytes_written: u64,
    pub records: u64,
    buffer: Vec<u8>,
    /// Offset up to which the file is known to have blocks. `u64::MAX` after an allocation ahead
    /// failed for lack of space, which suspends further attempts until the next checkpoint.
    allocated: u64,
}

impl Log {
    /// Creates the writer of an open database's log, which continues where `replayed` ends.
    /// `session` is random.
    pub(crate) fn new(
        file: Arc<dyn StorageFile>,
        half_bytes: u32,
        database_id: u128,
        session: u64,
        compress: bool,
        cipher: Cipher,
        replayed: &Replay<'_>,
    ) -> Self {
        let at = replayed.end;
        // A header that is there is not written again: a power cut could tear it.
        let unbegun = at.offset == HALF_HEADER_BYTES && !replayed.has_header;
        let allocated = file.len().unwrap_or(0);
        Self {
            has_remains: unbegun && allocated > 0,
            allocated,
            file,
            half_bytes,
            database_id,
            session,
            compress,
            cipher,
            at,
            came_from: replayed.came_from,
            unbegun,
            checkpoint_first: false,
            void: replayed.void,
            bytes_written: 0,
            records: 0,
            buffer: Vec::new(),
        }
    }

    /// The position that a superblock written now has to name. A half without a header can only be
    /// found from the previous one.
    pub(crate) fn position(&self) -> Position {
        if self.unbegun { self.came_from } else { self.at }
    }

    /// Position of the next record, to detect another writer's record there since the log was read.
    pub(crate) fn tail(&self) -> Tail {
        Tail {
            at: self.start_of_half() + u64::from(self.at.offset),
            salt: self.at.salt,
            crc: self.at.crc,
            half_bytes: self.half_bytes,
            cipher: self.cipher.clone(),
            void: self.void,
        }
    }

    /// Seals records by another cipher. The log has to be empty.
    #[cfg(feature = "encryption")]
    pub(crate) fn set_cipher(&mut self, cipher: Cipher) {
        debug_assert!(self.unbegun, "the log is empty");
        self.cipher = cipher;
    }

    /// Salt of the half that receives the next record.
    pub(crate) fn salt(&self) -> u64 {
        self.at.salt
    }

    /// Length of the log file in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.len().unwrap_or(0)
    }

    /// Maximum payload length of a record.
    pub(crate) fn max_payload(&self) -> usize {
        (self.half_bytes as usize / 4).min(MAX_PAYLOAD_BYTES)
    }

    /// Whether a record with a payload of `len` bytes fits into the rest of this half.
    pub(crate) fn has_space(&self, len: usize) -> bool {
        u64::from(self.at.offset) + self.record_len(len) as u64 <= u64::from(self.half_bytes)
    }

    /// Fill of this half, in thousandths. At 1000 a record of maximum length may no longer fit.
    pub(crate) fn fill(&self) -> usize {
        let end = self.half_bytes as usize - self.record_len(self.max_payload());
        if self.unbegun {
            0
        } else {
            // A half has up to 2^29 bytes: in 32 bits the product would overflow.
            (u64::from(self.at.offset) * 1000 / end as u64) as usize
        }
    }

    /// Maximum length of a record with a payload of `len` bytes.
    fn record_len(&self, len: usize) -> usize {
        record::record_len(record::stored_len(len, &self.cipher))
    }

    fn start_of_half(&self) -> u64 {
        u64::from(self.at.half) * u64::from(self.half_bytes)
    }

    /// Writes the header of this half, if it has none, into a file that has nothing else. The caller flushes it: a
    /// superblock may then say that this half has begun.
    pub(crate) fn begin(&mut self, base_version: u64) -> Result<()> {
        if !self.unbegun {
            return Ok(());
        }
        let header = self.header(base_version);
        self.file.write_at(self.start_of_half(), &[header, header].concat())?;
        self.unbegun = false;
        Ok(())
    }

    /// Whether the half has no header yet.
    pub(crate) fn is_unbegun(&self) -> bool {
        self.unbegun
    }

    /// Whether the file may have records from before the log was emptied, because the process died before it cut them.
    pub(crate) fn has_remains(&self) -> bool {
        self.unbegun && self.has_remains
    }

    /// Removes that. The caller flushes it.
    pub(crate) fn drop_remains(&mut self) -> Result<()> {
        self.allocated = 0;
        self.file.set_len(0)?;
        self.has_remains = false;
        Ok(())
    }

    fn header(&self, base_version: u64) -> [u8; COPY_BYTES] {
        let header = HalfHeader {
            half: self.at.half,
            database_id: self.database_id,
            salt: self.at.salt,
            from: self.came_from,
            base_version,
        };
        header.encode()
    }

    /// Appends a record to the file. `base_version` is the version of the last commit before it;
    /// `flushed_to` is the offset up to which the half is known to be flushed.
    ///
    /// # Errors
    /// After [`Error::StorageFull`] the log is unchanged and nothing of the record counts. After
    /// any other error the file may hold all or part of the record, so nothing more may be written.
    pub(crate) fn append(&mut self, payload: &[u8], base_version: u64, version: u64, flushed_to: u32) -> Result<()> {
        self.buffer.clear();
        let mut offset = self.at.offset;
        if self.unbegun {
            let header = self.header(base_version);
            self.buffer.extend_from_slice(&header);
            self.buffer.extend_from_slice(&header);
            offset = 0;
        }
        let header_len = self.buffer.len();
        let info = RecordInfo {
            previous_crc: self.at.crc,
            version,
            session: self.session as u32,
            flushed_to,
        };
        let cipher = &self.cipher;
        let crc = record::encode(self.at.salt, &info, payload, self.compress, cipher, &mut self.buffer);
        let start = self.start_of_half() + u64::from(offset);
        match self.write(start) {
            Err(error @ Error::StorageFull { .. }) => {
                if !self.stands(start, header_len)? {
                    return Err(error);
                }
            }
            written => written?,
        }
        self.unbegun = false;
        self.at.offset = offset + self.buffer.len() as u32;
        self.at.crc = crc;
        self.bytes_written += self.buffer.len() as u64;
        self.records += 1;
        Ok(())
    }

    /// Whether a record whose write failed for lack of space is in the file, and therefore counts.
    /// If not, a power cut cannot complete it and the next record takes its place: the position
    /// that a superblock names, and with it the way to later records, never changes here.
    ///
    /// # Errors
    /// It is unknown whether the record counts.
    fn stands(&self, start: u64, header_len: usize) -> Result<bool> {
        let present = self.file.len()?.saturating_sub(start).min(self.buffer.len() as u64);
        let mut bytes = vec![0; present as usize];
        if present > 0 {
            self.file.read_at(start, &mut bytes)?;
        }
        let record = bytes
            .get(header_len..)
            .and_then(|rest| record::decode(self.at.salt, self.half_bytes as usize, &self.cipher, rest));
        if record.is_some() && bytes[..header_len] != self.buffer[..header_len] {
            return Err(Error::io(
                "taking back a record of the log",
                "a write that failed left the record and not what comes before it; open the database again",
            ));
        }
        Ok(record.is_some())
    }

    /// End of the last record, in bytes of the file.
    fn end(&self) -> u64 {
        self.start_of_half() + u64::from(self.at.offset)
    }

    /// Offset up to which the file has blocks.
    fn end_of_blocks(&self) -> u64 {
        match self.allocated {
            u64::MAX => self.file_bytes(),
            // A header may have been written beyond it.
            known => known.max(self.end()),
        }
    }

    /// Bytes at the end of the file that recovery does not need, if both superblocks name `newest`.
    /// `None` if they are unknown.
    pub(crate) fn spare_bytes(&self, newest: &Position) -> Option<u64> {
        let blocks = self.end_of_blocks();
        let needs_other_half = self.at.half == 0 && newest.salt != self.at.salt && blocks > u64::from(self.half_bytes);
        (!self.unbegun && !needs_other_half).then(|| blocks.saturating_sub(self.end()))
    }

    /// Writes this many zeros at the end of the file, and more if the storage allows it, but none behind this
    /// half.
    pub(crate) fn extend(&mut self, bytes: u64) -> Result<()> {
        let most = self.start_of_half() + u64::from(self.half_bytes);
        let least = (self.end_of_blocks() + bytes).min(most);
        let ahead = u64::from(self.half_bytes / 32).min(MAX_AHEAD_BYTES);
        match self.extend_to((least + ahead).min(most)) {
            Err(Error::StorageFull { .. }) => self.extend_to(least),
            extended => extended,
        }
    }

    fn extend_to(&mut self, end: u64) -> Result<()> {
        let mut at = self.end_of_blocks();
        while at < end {
            let len = (end - at).min(MAX_AHEAD_BYTES);
            self.file.write_at(at, &vec![0; len as usize])?;
            at += len;
            self.allocated = at;
        }
        Ok(())
    }

    /// Whether the file is longer than recovery needs.
    pub(crate) fn can_cut(&self, newest: &Position) -> bool {
        self.spare_bytes(newest).is_some() && self.file_bytes() > self.end()
    }

    /// Cuts that. No zeros are written ahead until the next checkpoint.
    pub(crate) fn cut(&mut self) {
        // A failure is harmless: nothing there counts.
        let _ = self.file.set_len(self.end());
        self.allocated = u64::MAX;
    }

    /// Writes the buffer. If that extends the file, zeros are written after it: a flush that finds
    /// the length and the blocks of the file unchanged need not write its metadata.
    fn write(&mut self, at: u64) -> Result<()> {
        let len = self.buffer.len();
        let end = at + len as u64;
        if end > self.allocated {
            let end_of_half = self.start_of_half() + u64::from(self.half_bytes);
            let ahead = u64::from(self.half_bytes / 32).min(MAX_AHEAD_BYTES);
            let target = (end + ahead).min(end_of_half);
            self.buffer.resize(len + (target - end) as usize, 0);
            let written = self.file.write_at(at, &self.buffer);
            self.buffer.truncate(len);
            match written {
                // The record alone may fit.
                Err(Error::StorageFull { .. }) => self.allocated = u64::MAX,
                written => {
                    self.allocated = target;
                    return written;
                }
            }
        }
        self.file.write_at(at, &self.buffer)
    }

    /// Called when a checkpoint is durable.
    pub(crate) fn checkpointed(&mut self) {
        self.checkpoint_first = false;
        if self.allocated == u64::MAX {
            self.allocated = self.file.len().unwrap_or(0);
        }
    }

    /// Whether this half is full enough that the log should switch to the other one.
    pub(crate) fn should_switch(&self) -> bool {
        !self.unbegun && self.at.offset > self.half_bytes / 4
    }

    /// Whether a superblock that names `position` needs no record of the other half.
    pub(crate) fn needs_only_this_half(&self, position: &Position) -> bool {
        position.salt == self.at.salt || *position == self.came_from
    }

    /// Switches to the other half, of which neither superblock needs a record (invariant I16).
    /// `generation` is that of the newest superblock.
    pub(crate) fn switch(&mut self, generation: u64) {
        self.came_from = self.at;
        self.unbegun = true;
        self.has_remains = false;
        self.at = Position::first(1 - self.at.half, mix(self.at.salt, self.session, generation));
    }

    /// The position that a superblock names before the log is emptied. Its new salt invalidates all
    /// earlier records.
    pub(crate) fn fresh_position(&self, generation: u64) -> Position {
        Position::first(0, mix(self.at.salt, self.session, generation))
    }

    /// Continues at `position`, which a durable superblock names. The records that the file has do not
    /// count from there.
    pub(crate) fn move_to(&mut self, position: Position) {
        self.at = position;
        self.came_from = position;
        self.unbegun = true;
        self.has_remains = true;
    }

    /// Empties the file. A failure is harmless: no record in it has the new salt.
    pub(crate) fn empty(&mut self) {
        let _ = self.drop_remains();
    }
}

/// The position of the next record.
pub(crate) struct Tail {
    /// Offset in the file.
    pub(super) at: u64,
    pub(super) salt: u64,
    /// CRC of the preceding record.
    pub(super) crc: u32,
    pub(super) half_bytes: u32,
    pub(super) cipher: Cipher,
    /// CRC of a record found there that does not count.
    pub(super) void: Option<u32>,
}

impl Tail {
    /// Whether another writer has since appended a record.
    pub(crate) fn has_grown(&self, file: &dyn StorageFile) -> Result<bool> {
        let available = file
            .current_len()?
            .saturating_sub(self.at)
            .min(u64::from(self.half_bytes));
        if available < record::HEADER_BYTES as u64 {
            return Ok(false);
        }
        let mut bytes = vec![0; record::HEADER_BYTES];
        file.read_at(self.at, &mut bytes)?;
        let Some(len) = record::claimed_len(self.salt, &bytes).filter(|len| *len as u64 <= available) else {
            return Ok(false);
        };
        bytes.resize(len, 0);
        file.read_at(self.at, &mut bytes)?;
        let found = record::decode(self.salt, self.half_bytes as usize, &self.cipher, &bytes);
        Ok(found.is_some_and(|found| found.info.previous_crc == self.crc && Some(found.crc) != self.void))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, Storage};

    fn log(half_bytes: u32) -> Log {
        let file = MemoryStorage::new().open(LOG_FILE, true).unwrap();
        let replayed = Replay::empty(Position::first(0, 7));
        Log::new(file, half_bytes, 7, 1, false, Cipher::default(), &replayed)
    }

    /// A file that refuses each write for lack of space, and takes the end of it nevertheless.
    struct TakesTheEnd(Arc<dyn StorageFile>, u64);

    impl StorageFile for TakesTheEnd {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
            self.0.read_at(offset, into)
        }

        fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
            let skipped = (self.1.saturating_sub(offset) as usize).min(from.len());
            if skipped < from.len() {
                self.0.write_at(offset + skipped as u64, &from[skipped..])?;
            }
            Err(Error::StorageFull { context: "test".into() })
        }

        fn flush(&self) -> Result<()> {
            self.0.flush()
        }

        fn len(&self) -> Result<u64> {
            self.0.len()
        }

        fn set_len(&self, len: u64) -> Result<()> {
            self.0.set_len(len)
        }
    }

    /// The first record of a half needs the header before it. If a refused write left only the record,
    /// neither can be relied on.
    #[test]
    fn a_record_without_its_header_is_in_doubt() {
        for (missing, expected) in [
            (0, "Ok"),
            (u64::from(HALF_HEADER_BYTES), "Io"),
            (512, "Io"),
            (4000, "StorageFull"),
        ] {
            let mut log = log(4096);
            log.file = Arc::new(TakesTheEnd(Arc::clone(&log.file), missing));
            let appended = log.append(b"payload", 0, 1, 0);
            let found = match &appended {
                Ok(()) => "Ok",
                Err(Error::Io(_)) => "Io",
                Err(Error::StorageFull { .. }) => "StorageFull",
                Err(_) => "another",
            };
            assert_eq!(found, expected, "without the first {missing} bytes: {appended:?}");
        }
    }

    /// Zeros are written ahead of the records, but never into the other half.
    #[test]
    fn nothing_is_written_behind_the_half() {
        let mut log = log(4096);
        let mut records = 0;
        while log.has_space(8) {
            log.append(&[1; 8], records, records + 1, 0).unwrap();
            records += 1;
            assert!(log.file_bytes() <= 4096, "{} bytes", log.file_bytes());
        }
        assert_eq!(records, 64);
    }

    #[test]
    fn a_position_beyond_the_half_leaves_no_room() {
        let mut log = log(MAX_HALF_BYTES);
        assert!(log.has_space(MAX_PAYLOAD_BYTES));
        for offset in [MAX_HALF_BYTES, u32::MAX - 8, u32::MAX] {
            log.at.offset = offset;
            assert!(!log.has_space(0), "{offset}");
        }
    }

    #[test]
    fn the_fill_grows_with_the_half_however_long_it_is() {
        for half_bytes in [4096, 32 << 20, MAX_HALF_BYTES] {
            let mut log = log(half_bytes);
            log.unbegun = false;
            let fills: Vec<_> = (1..=10)
                .map(|tenths| {
                    log.at.offset = half_bytes / 10 * tenths;
                    log.fill()
                })
                .collect();
            assert!(fills.is_sorted_by(|a, b| a < b), "{half_bytes}: {fills:?}");
            assert!(fills[0] >= 100 && fills[9] >= 999, "{half_bytes}: {fills:?}");
        }
    }

    #[test]
    fn half_headers_have_golden_bytes_and_find_every_flipped_bit() {
        let header = HalfHeader {
            half: 1,
            database_id: 7,
            salt: 0x0102_0304,
            from: Position {
                half: 0,
                offset: 1024,
                crc: 5,
                salt: 6,
            },
            base_version: 8,
        };
        let bytes = header.encode();
        assert_eq!(&bytes[..16], b"MANGRLOG\x04\0\x01\0\0\x04\0\0");
        assert_eq!(&bytes[32..36], [4, 3, 2, 1]);
        assert_eq!(HalfHeader::decode(&bytes), Some(header));
        for bit in 0..COPY_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(HalfHeader::decode(&damaged), None, "bit {bit}");
        }
    }
}
