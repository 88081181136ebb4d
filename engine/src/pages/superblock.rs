//! The two superblock slots at the front of the data file.
//!
//! ```text
//! slot A at byte 0, slot B at byte 4096; a checkpoint with generation g writes slot g % 2
//! each slot: the 512-byte record below at +0 and again at +2048, zeros between and after, but for a claim (see `database::fence`) at +1024
//!   0  [8]  magic "MANGROVE"
//!   8  u16  format version: 4, or 5 if the database is encrypted
//!  10  u8   log2 of the allocation unit in bytes (9..=16)
//!  11  u8   compression: 0 none, 1 LZ4
//!  12  u32  node size in bytes, block header included
//!  16  u128 database id
//!  32  u64  generation: number of the checkpoint
//!  40  u64  version: last commit in it
//!  48  [24] root of the catalog: block reference, u56 records, u8 flags (all zero: no collections)
//!  72  [16] free map block (all zero: nothing is free)
//!  88  u64  length of the file in units
//!  96  u32  next collection id
//! 100  u32  length of a half of the log in bytes, 0: no log
//! 104  u64  session of the opening that wrote it, where openings watch for each other; else 0
//! 112  u64  salt of the half of the log where commits after this checkpoint stand
//! 120  [32] name of the key order, "bytewise" for that of the bytes, zero padded
//! 152  u8   that half; 153 u8 flags: 1 there are none, the log may be missing; 2 the log was flushed up to there; 154 u16 0
//! 156  u32  offset in the half of the first of them
//! 160  u32  CRC of the record before it
//! 164  u8   encryption: 0 none, 1 XChaCha20-Poly1305, 2 the same while another data key replaces the previous one; without it, zeros up to 508
//! 165  u8   length of the envelope; 166 u16 0
//! 168  [72] the data key, sealed under the user's key (see `cipher`)
//! 240  [128] envelope: what the host needs to get that key, then zeros
//! 368  [40] nonce and tag over bytes 0..368 and, with encryption 2, 408..488
//! 408  [72] with encryption 2, the previous data key, sealed under the new one; else 0
//! 480  u64  with encryption 2, the first generation whose blocks are sealed under the new key; else 0
//! 488  u64  version to which the log has to lead, as the trees hold part of the commits up to it; 0: they hold whole commits. The tag covers it unless it is 0
//! 496  [12] 0
//! 508  u32  CRC32 of bytes 0..508
//! ```
//! Both copies of a slot are written together. The second covers damage to the first; the other
//! slot covers a torn write of the whole slot. Data starts at byte 8192 or, for larger units, at
//! unit 1.

use crate::block::{BlockRef, Compression, REF_BYTES, checksum};
use crate::cipher::{self, Cipher, Domain, Key, OVERHEAD_BYTES, WrappedKey};
use crate::error::{Error, Result};
use crate::log::{LogStart, MAX_HALF_BYTES, MIN_HALF_BYTES, Position};
use crate::node::Child;
use crate::storage::StorageFile;

#[cfg(feature = "encryption")]
use crate::cipher::PreviousKey;

/// Format version that this build reads and writes.
pub(crate) const FORMAT_VERSION: u16 = 4;
/// Format version of encrypted databases.
const SEALED_VERSION: u16 = 5;
/// Newest format version that this build reads.
const NEWEST_VERSION: u16 = if cfg!(feature = "encryption") {
    SEALED_VERSION
} else {
    FORMAT_VERSION
};
/// Encryption by XChaCha20-Poly1305.
const CIPHER: u8 = 1;
/// The same, while a re-encryption is under way.
#[cfg(feature = "encryption")]
const CIPHER_RENEWED: u8 = 2;
const WRAPPED_OFFSET: usize = 165;
/// Where nonce and tag stand; they cover the bytes before.
const TAG_OFFSET: usize = 368;
#[cfg(feature = "encryption")]
const PREVIOUS_OFFSET: usize = TAG_OFFSET + OVERHEAD_BYTES;
const REACHES_OFFSET: usize = 488;
pub(crate) const SLOT_BYTES: usize = 4096;
/// Bytes at the front of the file that the two slots occupy.
pub(crate) const AREA_BYTES: u64 = 2 * SLOT_BYTES as u64;
/// Offset in a slot of the claim of an opening.
pub(crate) const CLAIM_OFFSET: usize = 1024;
pub(super) const RECORD_BYTES: usize = 512;
/// Maximum file length: any unit in such a file has a number below 2^48.
const MAX_FILE_BYTES: u64 = 1 << 56;
/// Maximum generation and version, reached after 285,000 years at a million commits a second.
const MAX_NUMBER: u64 = 1 << 63;
pub(super) const COPY_OFFSETS: [usize; 2] = [0, 2048];
/// Name of the file that holds the blocks.
pub(crate) const DATA_FILE: &str = "data";
const MAGIC: [u8; 8] = *b"MANGROVE";
/// The only supported key order: by bytes.
const KEY_ORDER: [u8; 32] = *b"bytewise\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The roots of the database: catalog, free map, log position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub unit_shift: u8,
    pub compression: Compression,
    pub node_bytes: u32,
    pub database_id: u128,
    pub generation: u64,
    pub version: u64,
    pub catalog: Option<Child>,
    pub free_map: Option<BlockRef>,
    pub file_units: u64,
    pub next_collection_id: u32,
    pub epoch: u64,
    /// Length of a half of the log; 0 if there is no log.
    pub log_half_bytes: u32,
    /// Position of the commits after this checkpoint.
    pub log: Position,
    /// There are no commits after this checkpoint: the database was closed.
    pub closed: bool,
    /// The log was flushed up to that position, so the half has its header, and the records before.
    pub log_is_flushed: bool,
    /// The checkpoint is partial: its trees hold part of the commits up to this version, all of
    /// which have to be in the log. 0 if it is whole.
    pub log_reaches: u64,
    /// `None`: the database is not encrypted.
    pub encryption: Option<Encryption>,
}

/// Encryption of a database, as its superblock has it.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    wrapped: WrappedKey,
    /// The data key that a re-encryption under way replaces.
    #[cfg(feature = "encryption")]
    previous: Option<PreviousKey>,
    /// Off until it is unlocked.
    cipher: Cipher,
    /// Nonce and tag as they were read.
    tag: [u8; OVERHEAD_BYTES],
}

impl PartialEq for Encryption {
    /// Each encoding has another nonce.
    fn eq(&self, other: &Self) -> bool {
        #[cfg(feature = "encryption")]
        if self.previous != other.previous {
            return false;
        }
        self.wrapped == other.wrapped
    }
}

impl Eq for Encryption {}

#[cfg_attr(
    not(feature = "encryption"),
    allow(unreachable_code, reason = "there are no keys, and so no values of this type")
)]
impl Encryption {
    /// Encryption of a new database.
    pub(crate) fn create(key: &Key, database_id: u128) -> Result<Self> {
        let (wrapped, cipher) = WrappedKey::create(key, database_id)?;
        Ok(Self {
            cipher,
            ..Self::locked(wrapped)
        })
    }

    fn locked(wrapped: WrappedKey) -> Self {
        Self {
            wrapped,
            #[cfg(feature = "encryption")]
            previous: None,
            cipher: Cipher::default(),
            tag: [0; OVERHEAD_BYTES],
        }
    }

    /// Encryption with another data key for blocks of generation `from` and later.
    #[cfg(feature = "encryption")]
    pub(crate) fn renewed(&self, key: &Key, database_id: u128, from: u64) -> Result<Self> {
        let (wrapped, previous, cipher) = WrappedKey::renew(&self.cipher, key, database_id, from)?;
        Ok(Self {
            wrapped,
            previous: Some(previous),
            cipher,
            tag: self.tag,
        })
    }

    /// First generation of the blocks under the new data key, while a re-encryption is under way.
    #[cfg(feature = "encryption")]
    pub(crate) fn renewed_from(&self) -> Option<u64> {
        self.previous.as_ref().map(|previous| previous.from)
    }

    /// The same without the data key that was replaced.
    #[cfg(feature = "encryption")]
    pub(crate) fn without_previous(&self) -> Self {
        Self {
            previous: None,
            ..self.clone()
        }
    }

    /// Decodes that of a superblock.
    fn decode(record: &[u8; RECORD_BYTES]) -> Result<Self> {
        let is_known = |number: u8| {
            #[cfg(feature = "encryption")]
            if number == CIPHER_RENEWED {
                return true;
            }
            number == CIPHER
        };
        let wrapped = WrappedKey::decode(&record[WRAPPED_OFFSET..TAG_OFFSET]).filter(|_| is_known(record[164]));
        let wrapped =
            wrapped.ok_or_else(|| Error::corrupt("the superblock names an encryption that does not exist"))?;
        Ok(Self {
            #[cfg(feature = "encryption")]
            previous: (record[164] == CIPHER_RENEWED).then(|| {
                let bytes = record[PREVIOUS_OFFSET..].first_chunk();
                PreviousKey::decode(bytes.expect("408 + 80 < 512"))
            }),
            tag: *record[TAG_OFFSET..].first_chunk().expect("368 + 40 < 512"),
            ..Self::locked(wrapped)
        })
    }

    /// The same data key, sealed under another key.
    #[cfg(feature = "encryption")]
    pub(crate) fn rewrapped(&self, key: &Key, database_id: u128) -> Result<Self> {
        Ok(Self {
            wrapped: self.wrapped.rewrapped(&self.cipher, key, database_id)?,
            ..self.clone()
        })
    }

    pub(crate) fn cipher(&self) -> Cipher {
        self.cipher.clone()
    }

    /// Encodes the sealed data key, for a backup.
    pub(crate) fn encode_wrapped_key(&self) -> Vec<u8> {
        self.wrapped.encode()
    }

    /// Decodes what [`encode_wrapped_key`](Self::encode_wrapped_key) returned, with zeros after it.
    pub(crate) fn decode_wrapped_key(bytes: &[u8]) -> Option<Self> {
        WrappedKey::decode(bytes).map(Self::locked)
    }

    /// Unlocks the data key.
    ///
    /// # Errors
    /// [`Error::WrongKey`]
    pub(crate) fn unlock(&self, key: &Key, database_id: u128) -> Result<Cipher> {
        let cipher = self.wrapped.unlock(key, database_id)?;
        #[cfg(feature = "encryption")]
        if let Some(previous) = &self.previous {
            return previous.unlock(&cipher);
        }
        Ok(cipher)
    }

    /// The bytes that the tag covers.
    #[cfg_attr(
        not(feature = "encryption"),
        allow(clippy::unused_self, reason = "as where there is encryption")
    )]
    fn tagged<'a>(&self, record: &'a [u8; RECORD_BYTES]) -> [&'a [u8]; 3] {
        let reaches = &record[REACHES_OFFSET..][..8];
        // Files from before this field have a tag without it.
        let reaches = if reaches == [0; 8] { &[] } else { reaches };
        #[cfg(feature = "encryption")]
        if self.previous.is_some() {
            return [
                &record[..TAG_OFFSET],
                &record[PREVIOUS_OFFSET..][..PreviousKey::BYTES],
                reaches,
            ];
        }
        [&record[..TAG_OFFSET], &[], reaches]
    }
}

/// The content of the front of a file.
pub(crate) enum Found {
    /// The file is empty, or its creation never finished.
    NotCreated,
    /// Valid superblocks, the newest first, the others in no particular order.
    Superblocks(Vec<Superblock>),
}

impl Superblock {
    /// First unit after the superblocks.
    pub(crate) fn first_data_unit(unit_shift: u8) -> u64 {
        AREA_BYTES.div_ceil(1 << unit_shift)
    }

    /// The cipher of the database's blocks and records; off if it is not encrypted.
    pub(crate) fn cipher(&self) -> Cipher {
        self.encryption.as_ref().map(Encryption::cipher).unwrap_or_default()
    }

    /// The fields that describe the log.
    pub(crate) fn log_start(&self) -> LogStart {
        LogStart {
            half_bytes: self.log_half_bytes,
            database_id: self.database_id,
            cipher: self.cipher(),
            position: self.log,
            version: self.version,
            is_closed: self.closed,
            is_flushed: self.log_is_flushed,
            reaches: self.log_reaches,
        }
    }

    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = self.encode_open();
        if let Some(encryption) = &self.encryption {
            let mut tag = encryption.tag;
            if encryption.cipher.is_on() {
                encryption
                    .cipher
                    .seal(Domain::Superblock, &encryption.tagged(&bytes), &mut tag);
            }
            bytes[TAG_OFFSET..][..OVERHEAD_BYTES].copy_from_slice(&tag);
        }
        let crc = checksum::hash(&bytes[..508]);
        bytes[508..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Encodes all but tag and checksum.
    fn encode_open(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        let version = if self.encryption.is_some() {
            SEALED_VERSION
        } else {
            FORMAT_VERSION
        };
        put(8, &version.to_le_bytes());
        put(10, &[self.unit_shift, u8::from(self.compression == Compression::Lz4)]);
        put(12, &self.node_bytes.to_le_bytes());
        put(16, &self.database_id.to_le_bytes());
        put(32, &self.generation.to_le_bytes());
        put(40, &self.version.to_le_bytes());
        if let Some(catalog) = &self.catalog {
            put(48, &catalog.encode());
        }
        if let Some(free_map) = &self.free_map {
            put(72, &free_map.encode());
        }
        put(88, &self.file_units.to_le_bytes());
        put(96, &self.next_collection_id.to_le_bytes());
        put(100, &self.log_half_bytes.to_le_bytes());
        put(104, &self.epoch.to_le_bytes());
        put(112, &self.log.salt.to_le_bytes());
        put(
            152,
            &[
                self.log.half,
                u8::from(self.closed) | u8::from(self.log_is_flushed) << 1,
            ],
        );
        put(156, &self.log.offset.to_le_bytes());
        put(160, &self.log.crc.to_le_bytes());
        put(120, &KEY_ORDER);
        put(REACHES_OFFSET, &self.log_reaches.to_le_bytes());
        if let Some(encryption) = &self.encryption {
            put(164, &[CIPHER]);
            put(WRAPPED_OFFSET, &encryption.wrapped.encode());
            #[cfg(feature = "encryption")]
            if let Some(previous) = &encryption.previous {
                put(164, &[CIPHER_RENEWED]);
                put(PREVIOUS_OFFSET, &previous.encode());
            }
        }
        bytes
    }

    /// `Ok(None)` if the bytes are not a valid record.
    pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Option<Self>> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..8] != MAGIC || checksum::hash(&bytes[..508]) != u32_at(508) {
            return Ok(None);
        }
        let found = u16::from_le_bytes([bytes[8], bytes[9]]);
        if found == SEALED_VERSION && !cfg!(feature = "encryption") {
            return Err(Error::WrongKey { is_missing: true });
        }
        if !(FORMAT_VERSION..=NEWEST_VERSION).contains(&found) {
            return Err(Error::VersionUnsupported {
                found,
                supported: NEWEST_VERSION,
            });
        }
        let encryption = if found == SEALED_VERSION {
            Some(Encryption::decode(bytes)?)
        } else {
            None
        };
        if bytes[120..152] != KEY_ORDER {
            let name = bytes[120..152].iter().take_while(|&&byte| byte != 0);
            return Err(Error::KeyOrderUnsupported {
                order: name.copied().map(char::from).collect::<String>().into(),
            });
        }
        let node_bytes = u32_at(12);
        let log_half_bytes = u32_at(100);
        let (9..=16, 256..=65536, 0 | MIN_HALF_BYTES..=MAX_HALF_BYTES) = (bytes[10], node_bytes, log_half_bytes) else {
            return Err(Error::corrupt("the superblock names options that do not exist"));
        };
        let free_map: &[u8; REF_BYTES] = bytes[72..].first_chunk().expect("72 + 16 < 512");
        let catalog = Child::decode_root(&bytes[48..72])?;
        let free_map = BlockRef::decode_optional(free_map)?;
        let (unit_shift, generation, version, file_units) = (bytes[10], u64_at(32), u64_at(40), u64_at(88));
        // Within these limits, sums and products never overflow.
        let units = Self::first_data_unit(unit_shift)..=MAX_FILE_BYTES >> unit_shift;
        if !units.contains(&file_units) || generation.max(version).max(u64_at(REACHES_OFFSET)) > MAX_NUMBER {
            return Err(Error::corrupt("the superblock holds an impossible number"));
        }
        Ok(Some(Self {
            unit_shift,
            compression: if bytes[11] == 0 {
                Compression::None
            } else {
                Compression::Lz4
            },
            node_bytes,
            database_id: u128::from(u64_at(16)) | u128::from(u64_at(24)) << 64,
            generation,
            version,
            catalog,
            free_map,
            file_units,
            next_collection_id: u32_at(96),
            epoch: u64_at(104),
            log_half_bytes,
            log: Position {
                half: bytes[152] & 1,
                offset: u32_at(156),
                crc: u32_at(160),
                salt: u64_at(112),
            },
            closed: bytes[153] & 1 != 0,
            log_is_flushed: bytes[153] & 2 != 0,
            log_reaches: u64_at(REACHES_OFFSET),
            encryption,
        }))
    }

    /// Whether the database's own key sealed this record.
    fn accept(&mut self, cipher: &Cipher) -> bool {
        let open = self.encode_open();
        let Some(encryption) = &mut self.encryption else {
            return false;
        };
        let mut tag = encryption.tag;
        encryption.cipher = cipher.clone();
        cipher.open(Domain::Superblock, &encryption.tagged(&open), &mut tag)
    }

    /// Writes the slot of this generation; the caller flushes.
    pub(crate) fn write(&self, file: &dyn StorageFile) -> Result<()> {
        let record = self.encode();
        let mut slot = [0; SLOT_BYTES];
        for at in COPY_OFFSETS {
            slot[at..at + RECORD_BYTES].copy_from_slice(&record);
        }
        let offset = (self.generation % 2) * SLOT_BYTES as u64;
        file.write_at(offset, &slot)
    }
}

/// Unlocks superblocks, of which the first is the newest, and drops those that do not belong to it.
///
/// # Errors
/// [`Error::WrongKey`] if the key is another one or missing, [`Error::NotEncrypted`] if there
/// should be none, [`Error::Corrupt`] if the newest was not written with the key.
pub(crate) fn unlock(superblocks: &mut Vec<Superblock>, key: Option<&Key>) -> Result<()> {
    let newest = &superblocks[0];
    let cipher = match (&newest.encryption, key) {
        (None, None) => {
            superblocks.retain(|superblock| superblock.encryption.is_none());
            return Ok(());
        }
        (None, Some(_)) => return Err(cipher::not_encrypted()),
        (Some(_), None) => return Err(Error::WrongKey { is_missing: true }),
        (Some(encryption), Some(key)) => encryption.unlock(key, newest.database_id)?,
    };
    let generation = newest.generation;
    superblocks.retain_mut(|superblock| superblock.accept(&cipher));
    match superblocks.first() {
        Some(first) if first.generation == generation => Ok(()),
        _ => Err(Error::corrupt(
            "the newest superblock was not written with the database's key",
        )),
    }
}

/// As [`unlock`], for what is only read: without encryption, the key is for the copy.
pub(crate) fn unlock_source(superblocks: &mut Vec<Superblock>, key: Option<&Key>) -> Result<()> {
    let is_encrypted = superblocks[0].encryption.is_some();
    unlock(superblocks, key.filter(|_| is_encrypted))
}

/// Whether a file of `len` bytes that starts with `front` is ours: it has our magic in a copy of a
/// superblock, or is an unfinished creation.
pub(crate) fn is_data_file(front: &[u8], len: u64) -> bool {
    let slots = front.chunks(SLOT_BYTES);
    let mut copies = slots.flat_map(|slot| COPY_OFFSETS.map(|at| slot.get(at..).unwrap_or_default()));
    copies.any(|copy| copy.starts_with(&MAGIC))
        || len <= AREA_BYTES && front.iter().take(SLOT_BYTES).all(|byte| *byte == 0)
}

/// Reads both slots, changing nothing.
pub(crate) fn read_all(file: &dyn StorageFile, name: &str) -> Result<Found> {
    let len = file.len()?;
    let mut area = vec![0; AREA_BYTES as usize];
    let present = len.min(AREA_BYTES) as usize;
    file.read_at(0, &mut area[..present])?;
    let mut found: Vec<Superblock> = Vec::new();
    let mut problem = None;
    for slot in area.chunks_exact(SLOT_BYTES) {
        for at in COPY_OFFSETS {
            let record = slot[at..].first_chunk().expect("a slot holds both copies");
            match Superblock::decode(record) {
                // Both copies count: a torn write can leave an old first copy before a new second
                // one. The newest record of all must win, or the next checkpoint would reuse its
                // generation and its blocks while it still exists.
                Ok(Some(superblock)) => found.push(superblock),
                Ok(None) => {}
                Err(error) => problem = Some(error),
            }
        }
    }
    // A slot of a newer format means that a newer release wrote the file: the other slot alone
    // would be stale.
    if let Some(error) = problem {
        return Err(error);
    }
    if !found.is_empty() {
        // Not sorted: a general sort would be a fiftieth of the WebAssembly module.
        let newest = (0..found.len())
            .max_by_key(|index| found[*index].generation)
            .unwrap_or(0);
        found.swap(0, newest);
        return Ok(Found::Superblocks(found));
    }
    // Creation writes only slot B and flushes (I9), so a power cut leaves nothing or zeros in slot
    // A and at most torn sectors in slot B.
    if len <= AREA_BYTES && area[..SLOT_BYTES].iter().all(|byte| *byte == 0) {
        return Ok(Found::NotCreated);
    }
    if area.chunks_exact(2048).any(|part| part[..8] == MAGIC) {
        return Err(Error::corrupt("all copies of the superblock are damaged"));
    }
    Err(Error::NotADatabase { file: name.into() })
}

/// The remains of the two slots.
pub(crate) struct Copies {
    /// The newest record among all copies.
    pub newest: Option<Superblock>,
    /// Whether no newer record can have been lost: the other slot holds the previous checkpoint, or
    /// there is none yet.
    pub is_certain: bool,
}

impl Copies {
    /// Unlocks the newest record of an encrypted database.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if the key is another one or missing; [`Error::Corrupt`] if the record was
    /// not written with it.
    pub(crate) fn unlock(&mut self, key: Option<&Key>) -> Result<Cipher> {
        let Some(newest) = self.newest.take() else {
            return Ok(Cipher::default());
        };
        let mut list = vec![newest];
        unlock_source(&mut list, key)?;
        self.newest = list.pop();
        Ok(self.newest.as_ref().map(Superblock::cipher).unwrap_or_default())
    }
}

/// Reads each copy separately. An unreadable copy counts as damaged.
///
/// # Errors
/// [`Error::VersionUnsupported`] if a newer release has written to the file, [`Error::WrongKey`] if
/// it is encrypted and this build reads no encryption.
pub(crate) fn read_copies(file: &dyn StorageFile) -> Result<Copies> {
    let mut newest: Option<Superblock> = None;
    let mut best = [0; 2];
    for (slot, best) in best.iter_mut().enumerate() {
        for at in COPY_OFFSETS {
            let mut record = [0; RECORD_BYTES];
            if file.read_at((slot * SLOT_BYTES + at) as u64, &mut record).is_err() {
                continue;
            }
            match Superblock::decode(&record) {
                Ok(Some(superblock)) => {
                    *best = superblock.generation.max(*best);
                    if newest
                        .as_ref()
                        .is_none_or(|newest| newest.generation < superblock.generation)
                    {
                        newest = Some(superblock);
                    }
                }
                Err(error @ (Error::VersionUnsupported { .. } | Error::WrongKey { .. })) => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
    }
    let is_certain = match (best[0].min(best[1]), best[0].max(best[1])) {
        // Creation writes only slot B. If the file holds more, slot A may have been lost.
        (0, 1) => best[1] == 1 && file.len()? <= AREA_BYTES && slot_is_zero(file, 0),
        // An opening after a crash skips two generations.
        (older, newer) => older > 0 && matches!(newer - older, 1 | 3),
    };
    Ok(Copies { newest, is_certain })
}

fn slot_is_zero(file: &dyn StorageFile, slot: usize) -> bool {
    let mut bytes = [0; SLOT_BYTES];
    let offset = (slot * SLOT_BYTES) as u64;
    file.read_at(offset, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, Storage};

    fn sample() -> Superblock {
        Superblock {
            unit_shift: 12,
            compression: Compression::Lz4,
            node_bytes: 16384,
            database_id: 7,
            generation: 3,
            version: 9,
            catalog: Some(Child {
                pointer: BlockRef {
                    unit: 5,
                    units: 2,
                    checksum: 1,
                    raw_len: 99,
                },
                count: 2,
                has_overflow: false,
            }),
            free_map: None,
            file_units: 8,
            next_collection_id: 4,
            epoch: 1,
            log_half_bytes: 1 << 20,
            log: Position {
                half: 1,
                offset: 1024,
                crc: 5,
                salt: 6,
            },
            closed: true,
            log_is_flushed: true,
            log_reaches: 10,
            encryption: None,
        }
    }

    #[test]
    fn record_round_trips_and_has_golden_bytes() {
        let record = sample().encode();
        assert_eq!(&record[..16], b"MANGROVE\x04\x00\x0c\x01\x00\x40\x00\x00");
        assert_eq!(&record[48..54], [5, 0, 0, 0, 0, 0]);
        assert_eq!(&record[120..128], b"bytewise");
        assert_eq!(Superblock::decode(&record).unwrap(), Some(sample()));
    }

    /// Regression: the first valid copy of a slot was used. After a torn write that left an old
    /// first copy, a generation was used twice, and a second torn write revived the abandoned one
    /// over blocks that had been overwritten.
    #[test]
    fn the_newest_copy_wins_wherever_it_stands() {
        let storage = MemoryStorage::new();
        let file = storage.open("data", true).unwrap();
        let record = |generation| {
            let superblock = Superblock { generation, ..sample() };
            superblock.encode()
        };
        file.write_at(0, &record(4)).unwrap();
        file.write_at(4096, &record(3)).unwrap();
        file.write_at(4096 + 2048, &record(5)).unwrap();
        let Found::Superblocks(list) = read_all(&*file, "data").unwrap() else {
            panic!("there are superblocks");
        };
        assert_eq!(list.len(), 3);
        assert_eq!(list[0].generation, 5);
    }

    /// A half is read into memory as a whole, and its length is divided by.
    #[test]
    fn impossible_lengths_of_the_log_are_refused() {
        let decoded = |log_half_bytes| {
            let superblock = Superblock {
                log_half_bytes,
                ..sample()
            };
            Superblock::decode(&superblock.encode())
        };
        for possible in [0, MIN_HALF_BYTES, MAX_HALF_BYTES] {
            assert!(decoded(possible).unwrap().is_some(), "{possible}");
        }
        for impossible in [1, MIN_HALF_BYTES - 1, MAX_HALF_BYTES + 1, u32::MAX] {
            assert!(matches!(decoded(impossible), Err(Error::Corrupt(_))), "{impossible}");
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let record = sample().encode();
        for bit in 0..RECORD_BYTES * 8 {
            let mut damaged = record;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::decode(&damaged).unwrap(), None, "bit {bit}");
        }
    }
}
