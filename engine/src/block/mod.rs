//! Checksummed, optionally LZ4-compressed and encrypted blocks in whole allocation units.
//!
//! ```text
//! block header, 32 bytes, little endian; the payload follows, then zeros up to the next unit
//!  0  u32  magic "MGBK"
//!  4  u8   kind: 1 leaf, 2 inner, 3 value chunk, 4 value index, 5 free map
//!  5  u8   codec: 0 raw, 1 LZ4 block; 2 and 3 the same, sealed
//!  6  u8   level of the node, 0 otherwise
//!  7  u8   0
//!  8  u32  stored length of the payload
//! 12  u32  raw length of the payload
//! 16  u64  generation: number of the checkpoint that wrote it
//! 24  u32  owner: id of the collection, 0 for catalog and free map
//! 28  u32  checksum: low half of XXH64 of the stored payload, with XXH64 of bytes 0..28 as seed
//! ```
//! The reference to a block repeats its checksum, so its parent detects a lost or misdirected
//! write.
//!
//! A sealed payload is what [`cipher`](crate::cipher) describes: nonce, ciphertext, tag. The text is a
//! random number, the stamp, u32, and the payload. Associated data are the block's first unit, u64,
//! and bytes 0..28 of its header. The reference to a sealed block repeats the stamp instead of the
//! checksum. Nobody without the key sees either, so nobody can choose an older block that fits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use twox_hash::XxHash64;

use crate::cipher::{self, Cipher, CurrentCipher, NONCE_BYTES};
use crate::error::{Error, Result};
use crate::storage::StorageFile;

mod buffers;
pub(crate) mod checksum;
pub(crate) mod lz4;
pub(crate) mod reference;
mod salvage;

use buffers::Buffers;
pub(crate) use reference::{BlockRef, MAX_BLOCK_UNITS, PageId, REF_BYTES};
pub(crate) use salvage::Header;

pub(crate) const HEADER_BYTES: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"MGBK");
const CODEC_RAW: u8 = 0;
const CODEC_LZ4: u8 = 1;
/// Added to the codec of a sealed payload.
const SEALED: u8 = 2;
const STAMP_BYTES: usize = 4;
/// Bytes before the payload in sealed bytes.
const SEALED_HEAD_BYTES: usize = NONCE_BYTES + STAMP_BYTES;
/// Bytes by which encryption makes a block longer.
const SEALED_BYTES: usize = cipher::OVERHEAD_BYTES + STAMP_BYTES;

/// The content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Leaf = 1,
    Inner = 2,
    ValueChunk = 3,
    ValueIndex = 4,
    FreeMap = 5,
}

/// Block compression, fixed when a database is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Blocks are stored as they are.
    None,
    /// LZ4 where it saves at least one allocation unit.
    #[default]
    Lz4,
}

/// Header fields that the writer of a block chooses.
#[derive(Clone, Copy)]
pub(crate) struct BlockInfo {
    pub kind: Kind,
    pub level: u8,
    pub owner: u32,
    pub generation: u64,
}

/// The data file seen as an array of allocation units.
pub(crate) struct BlockFile {
    file: Arc<dyn StorageFile>,
    unit_shift: u32,
    /// Length of the file in units when last queried.
    known_units: AtomicU64,
    buffers: Buffers,
    cipher: CurrentCipher,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl BlockFile {
    pub(crate) fn new(file: Arc<dyn StorageFile>, unit_shift: u32) -> Self {
        Self {
            file,
            unit_shift,
            known_units: AtomicU64::new(0),
            buffers: Buffers::default(),
            cipher: CurrentCipher::new(Cipher::default()),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        }
    }

    /// Blocks are sealed, if the cipher is on.
    pub(crate) fn encrypted_by(mut self, cipher: Cipher) -> Self {
        self.cipher = CurrentCipher::new(cipher);
        self
    }

    /// From now on blocks are sealed and opened by another cipher, which has the keys of this one.
    #[cfg(feature = "encryption")]
    pub(crate) fn set_cipher(&self, cipher: Cipher) {
        self.cipher.set(cipher);
    }

    /// Length of a block without its payload.
    pub(crate) fn overhead(&self) -> usize {
        HEADER_BYTES + if self.cipher.is_on() { SEALED_BYTES } else { 0 }
    }

    pub(crate) fn file(&self) -> &dyn StorageFile {
        &*self.file
    }

    pub(crate) fn unit_bytes(&self) -> usize {
        1 << self.unit_shift
    }

    /// Number of units needed for `bytes`.
    pub(crate) fn units_for(&self, bytes: usize) -> u64 {
        (bytes as u64).div_ceil(self.unit_bytes() as u64)
    }

    pub(crate) fn write_units(&self, unit: u64, bytes: &[u8]) -> Result<()> {
        self.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_at(unit << self.unit_shift, bytes)
    }

    /// Appends a block with `payload` (its parts in order) to `out`, padded to whole units. It has to
    /// be given a [place](Self::place) before it is written.
    pub(crate) fn encode(
        &self,
        info: BlockInfo,
        payload: &[&[u8]],
        compression: Compression,
        out: &mut Vec<u8>,
    ) -> BlockRef {
        self.encode_measured(info, payload, compression, out).0
    }

    /// As [`encode`](Self::encode); also returns the compressed length of the payload, even if it is
    /// stored raw.
    pub(crate) fn encode_measured(
        &self,
        info: BlockInfo,
        payload: &[&[u8]],
        compression: Compression,
        out: &mut Vec<u8>,
    ) -> (BlockRef, usize) {
        encode_measured(info, payload, compression, self.unit_bytes(), &self.cipher.get(), out)
    }

    /// Whether a sealed block was written before the checkpoint `generation`, by its header.
    #[cfg(feature = "encryption")]
    pub(crate) fn is_older(&self, reference: &BlockRef, generation: u64) -> Result<bool> {
        self.check_bounds(reference)?;
        let mut header = [0; HEADER_BYTES];
        self.file.read_at(reference.unit << self.unit_shift, &mut header)?;
        Ok(self::generation(&header) < generation)
    }

    /// Makes a block that was read to be moved one of the checkpoint `generation`, if its key depends
    /// on that.
    pub(crate) fn set_generation(&self, block: &mut [u8], generation: u64) {
        if self.cipher.is_on() {
            block[16..24].copy_from_slice(&generation.to_le_bytes());
        }
    }

    /// Gives an encoded block its place, `unit`, and seals it for it.
    pub(crate) fn place(&self, block: &mut [u8], reference: &mut BlockRef, unit: u64) {
        reference.unit = unit;
        if self.cipher.is_on() {
            reference.checksum = seal_block(&self.cipher.get(), block, unit);
        }
    }

    /// Reads a block and checks it against its reference, kind and owner (invariant I2).
    pub(crate) fn read(&self, reference: &BlockRef, kind: &[Kind], owner: u32) -> Result<Vec<u8>> {
        let block = self.read_checked(reference, kind, owner)?;
        expand_in(self.plain(block), reference, &self.buffers)
    }

    /// As [`read`](Self::read), but returns the units, to be [placed](Self::place) elsewhere.
    pub(crate) fn read_stored(&self, reference: &BlockRef, kind: Kind, owner: u32) -> Result<Vec<u8>> {
        let block = self.read_checked(reference, &[kind], owner)?;
        expand(self.plain(block.clone()), reference)?;
        Ok(block)
    }

    /// Reads and checks a block; a sealed one is opened in place.
    fn read_checked(&self, reference: &BlockRef, kinds: &[Kind], owner: u32) -> Result<Vec<u8>> {
        let mut block = self.read_units(reference)?;
        if self.cipher.is_on() {
            open_block(&self.cipher.get(), &mut block, reference, kinds, owner)?;
        } else {
            check(&block, reference, kinds, owner)?;
        }
        Ok(block)
    }

    /// A block that was opened, as if it had never been sealed.
    fn plain(&self, mut block: Vec<u8>) -> Vec<u8> {
        if self.cipher.is_on() {
            remove_encryption(&mut block);
        }
        block
    }

    /// Reads the units of a block without checking them.
    pub(crate) fn read_units(&self, reference: &BlockRef) -> Result<Vec<u8>> {
        // Checked before allocating: a hostile reference can claim two gigabytes.
        let end = self.check_bounds(reference)?;
        let mut block = self.buffers.take((reference.units as usize) << self.unit_shift);
        self.bytes_read.fetch_add(block.len() as u64, Ordering::Relaxed);
        let read = self.file.read_at(reference.unit << self.unit_shift, &mut block);
        if let Err(error) = read {
            // The file may have become shorter.
            self.check_end(reference, end)?;
            return Err(error);
        }
        Ok(block)
    }

    /// Checks that a block lies within the file, as last queried, and returns where it ends.
    fn check_bounds(&self, reference: &BlockRef) -> Result<u64> {
        // Units, unlike bytes, cannot overflow.
        let end = reference.unit + u64::from(reference.units);
        if end > self.known_units.load(Ordering::Relaxed) {
            self.check_end(reference, end)?;
        }
        Ok(end)
    }

    /// Returns the buffer of an evicted page to the pool.
    pub(crate) fn reuse(&self, buffer: Vec<u8>) {
        self.buffers.give_back(buffer);
    }

    /// Queries the length of the file and checks that it reaches the unit `end`.
    fn check_end(&self, reference: &BlockRef, end: u64) -> Result<()> {
        let units = self.file.len()? >> self.unit_shift;
        self.known_units.store(units, Ordering::Relaxed);
        if end > units {
            let what = "a block lies beyond the end of the file";
            return Err(Error::corrupt_at(reference.unit, what));
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Number of the checkpoint that wrote a block with this header.
fn generation(header: &[u8]) -> u64 {
    u64::from(word(header, 16)) | u64::from(word(header, 20)) << 32
}

/// Appends a block that is not sealed. The caller sets the unit in the returned reference.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn encode(
    info: BlockInfo,
    payload: &[&[u8]],
    compression: Compression,
    unit_bytes: usize,
    out: &mut Vec<u8>,
) -> BlockRef {
    encode_measured(info, payload, compression, unit_bytes, &Cipher::default(), out).0
}

/// Appends a block; if it is to be sealed, [`seal_block`] completes it. Also returns the compressed
/// length of the payload, even if it is stored raw.
fn encode_measured(
    info: BlockInfo,
    payload: &[&[u8]],
    compression: Compression,
    unit_bytes: usize,
    cipher: &Cipher,
    out: &mut Vec<u8>,
) -> (BlockRef, usize) {
    let start = out.len();
    let raw_len: usize = payload.iter().map(|part| part.len()).sum();
    let head = HEADER_BYTES + cipher.adds(SEALED_HEAD_BYTES);
    out.resize(start + head, 0);
    let units = |len: usize| (HEADER_BYTES + cipher.adds(SEALED_BYTES) + len).div_ceil(unit_bytes);
    let mut codec = CODEC_RAW;
    let mut packed_len = raw_len;
    if compression == Compression::Lz4 && units(raw_len) > 1 {
        let joined;
        let input = if let [single] = payload {
            *single
        } else {
            joined = payload.concat();
            &joined
        };
        if !lz4::is_incompressible(input) {
            let written = lz4::compress(input, out);
            packed_len = written.min(raw_len);
            if written < raw_len && units(written) < units(raw_len) {
                codec = CODEC_LZ4;
            } else {
                out.truncate(start + head);
            }
        }
    }
    if codec == CODEC_RAW {
        for part in payload {
            out.extend_from_slice(part);
        }
    }
    if cipher.is_on() {
        out.extend_from_slice(&[0; cipher::TAG_BYTES]);
        codec |= SEALED;
    }
    let stored_len = out.len() - start - HEADER_BYTES;
    let header = &mut out[start..start + HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&[info.kind as u8, codec, info.level, 0]);
    header[8..12].copy_from_slice(&(stored_len as u32).to_le_bytes());
    header[12..16].copy_from_slice(&(raw_len as u32).to_le_bytes());
    header[16..24].copy_from_slice(&info.generation.to_le_bytes());
    header[24..28].copy_from_slice(&info.owner.to_le_bytes());
    let mut checksum = 0;
    if !cipher.is_on() {
        checksum = set_checksum(&mut out[start..]);
    }
    let units = (HEADER_BYTES + stored_len).div_ceil(unit_bytes);
    out.resize(start + units * unit_bytes, 0);
    let reference = BlockRef {
        unit: 0,
        units: units as u16,
        checksum,
        raw_len: raw_len as u32,
    };
    (reference, packed_len)
}

/// Checksum of a block: the low half of XXH64 of the payload. The seed is XXH64 of the header
/// without the checksum field. Reading one record verifies a whole block, and a CRC32 of 16 KiB
/// takes 11 µs in WebAssembly, which has no instruction for it.
pub(crate) fn block_checksum(block: &[u8]) -> u32 {
    let seed = XxHash64::oneshot(0, &block[..28]);
    XxHash64::oneshot(seed, &block[HEADER_BYTES..]) as u32
}

fn set_checksum(block: &mut [u8]) -> u32 {
    let checksum = block_checksum(block);
    block[28..32].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// Seals a block, in whose sealed bytes the text stands, for its place. Returns its stamp.
fn seal_block(cipher: &Cipher, block: &mut [u8], unit: u64) -> u32 {
    let end = HEADER_BYTES + word(block, 8) as usize;
    let (header, sealed) = block[..end].split_at_mut(HEADER_BYTES);
    let stamp = cipher.stamp();
    sealed[NONCE_BYTES..SEALED_HEAD_BYTES].copy_from_slice(&stamp.to_le_bytes());
    cipher.seal_block(generation(header), &[&unit.to_le_bytes(), &header[..28]], sealed);
    set_checksum(&mut block[..end]);
    stamp
}

/// Opens a sealed block in place and checks it against its reference, kind and owner.
fn open_block(cipher: &Cipher, block: &mut [u8], reference: &BlockRef, kinds: &[Kind], owner: u32) -> Result<()> {
    let stamp = open_at(cipher, block, reference.unit)?;
    if stamp != reference.checksum || word(block, 12) != reference.raw_len {
        let what = "a block is not the one its parent refers to";
        return Err(Error::corrupt_at(reference.unit, what));
    }
    check_owner(block, reference, kinds, owner)
}

/// Opens the sealed block at `unit` in place; returns its stamp.
fn open_at(cipher: &Cipher, block: &mut [u8], unit: u64) -> Result<u32> {
    let damaged = |what: &str| Error::corrupt_at(unit, what);
    let stored_len = word(block, 8) as usize;
    if word(block, 0) != MAGIC || stored_len > block.len() - HEADER_BYTES {
        return Err(damaged("a block's header is damaged"));
    }
    if block[5] & SEALED == 0 {
        return Err(damaged("a block of an encrypted database is not encrypted"));
    }
    if stored_len < SEALED_BYTES {
        return Err(damaged("a block is too short to be encrypted"));
    }
    let (header, sealed) = block[..HEADER_BYTES + stored_len].split_at_mut(HEADER_BYTES);
    if !cipher.open_block(generation(header), &[&unit.to_le_bytes(), &header[..28]], sealed) {
        return Err(damaged("a block is not what was encrypted at its place"));
    }
    Ok(word(sealed, NONCE_BYTES))
}

/// Turns an opened block into one that was never sealed, but for its checksum.
fn remove_encryption(block: &mut [u8]) {
    let stored_len = word(block, 8) as usize;
    let from = HEADER_BYTES + SEALED_HEAD_BYTES;
    block.copy_within(from..HEADER_BYTES + stored_len - cipher::TAG_BYTES, HEADER_BYTES);
    block[5] &= !SEALED;
    block[8..12].copy_from_slice(&((stored_len - SEALED_BYTES) as u32).to_le_bytes());
}

/// Checks a block against its reference and returns its payload.
pub(crate) fn decode(block: Vec<u8>, reference: &BlockRef, kinds: &[Kind], owner: u32) -> Result<Vec<u8>> {
    check(&block, reference, kinds, owner)?;
    expand(block, reference)
}

/// Checks the units of a block against its reference, kind and owner.
pub(crate) fn check(block: &[u8], reference: &BlockRef, kinds: &[Kind], owner: u32) -> Result<()> {
    let damaged = |what: &str| Error::corrupt_at(reference.unit, what);
    if word(block, 0) != MAGIC {
        return Err(damaged("a block does not begin with the block magic"));
    }
    let stored_len = word(block, 8) as usize;
    let raw_len = word(block, 12);
    if stored_len > block.len() - HEADER_BYTES {
        return Err(damaged("a block's length exceeds its extent"));
    }
    let checksum = block_checksum(&block[..HEADER_BYTES + stored_len]);
    if checksum != word(block, 28) {
        return Err(damaged("a block's checksum does not match its content"));
    }
    if checksum != reference.checksum || raw_len != reference.raw_len {
        return Err(damaged("a block is not the one its parent refers to"));
    }
    check_owner(block, reference, kinds, owner)
}

fn check_owner(header: &[u8], reference: &BlockRef, kinds: &[Kind], owner: u32) -> Result<()> {
    if !kinds.iter().any(|kind| *kind as u8 == header[4]) || word(header, 24) != owner {
        let what = "a block has another kind or owner than its parent says";
        return Err(Error::corrupt_at(reference.unit, what));
    }
    Ok(())
}

/// Returns the payload of a checked block.
pub(crate) fn expand(block: Vec<u8>, reference: &BlockRef) -> Result<Vec<u8>> {
    expand_in(block, reference, &Buffers::default())
}

fn expand_in(mut block: Vec<u8>, reference: &BlockRef, buffers: &Buffers) -> Result<Vec<u8>> {
    let damaged = |what: &str| Error::corrupt_at(reference.unit, what);
    let stored_len = word(&block, 8) as usize;
    let raw_len = word(&block, 12);
    block.truncate(HEADER_BYTES + stored_len);
    match block[5] {
        CODEC_RAW if stored_len == raw_len as usize => {
            block.drain(..HEADER_BYTES);
            Ok(block)
        }
        CODEC_LZ4 => {
            let raw = lz4::expand(&block[HEADER_BYTES..], raw_len as usize, |len| buffers.take(len));
            buffers.give_back(block);
            raw.ok_or_else(|| damaged("a compressed block cannot be expanded"))
        }
        CODEC_RAW => Err(damaged("a raw block's lengths differ")),
        codec => Err(damaged(&format!("a block has the unknown codec {codec}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: BlockInfo = BlockInfo {
        kind: Kind::Leaf,
        level: 0,
        owner: 9,
        generation: 5,
    };

    fn round_trip(payload: &[u8], compression: Compression) -> (BlockRef, Vec<u8>) {
        let mut out = Vec::new();
        let reference = encode(INFO, &[payload], compression, 512, &mut out);
        assert_eq!(out.len(), usize::from(reference.units) * 512);
        assert_eq!(decode(out.clone(), &reference, &[Kind::Leaf], 9).unwrap(), payload);
        (reference, out)
    }

    #[test]
    fn blocks_round_trip_raw_and_compressed() {
        let text = b"mangrove ".repeat(300);
        let (raw, _) = round_trip(&text, Compression::None);
        let (packed, _) = round_trip(&text, Compression::Lz4);
        assert_eq!(raw.units, 6);
        assert_eq!(packed.units, 1);
        round_trip(b"", Compression::Lz4);
    }

    #[test]
    fn header_has_golden_bytes() {
        let (reference, block) = round_trip(b"abc", Compression::None);
        assert_eq!(&block[..8], b"MGBK\x01\x00\x00\x00");
        assert_eq!(
            &block[8..28],
            [3, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]
        );
        assert_eq!(word(&block, 28), reference.checksum);
        assert_eq!(&block[32..36], b"abc\0");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (reference, block) = round_trip(&b"payload ".repeat(20), Compression::None);
        for bit in 0..(HEADER_BYTES + 160) * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(damaged, &reference, &[Kind::Leaf], 9).is_err(), "bit {bit}");
        }
        assert!(decode(block.clone(), &reference, &[Kind::Inner], 9).is_err());
        assert!(decode(block, &reference, &[Kind::Leaf], 8).is_err());
    }
}
