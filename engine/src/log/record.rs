//! Log records: a header, then the changes of one or more commits.
//!
//! ```text
//!  0  u32  tag: low half of the half's salt, mixed
//!  4  u32  stored length of the payload
//!  8  u32  raw length of the payload
//! 12  u32  CRC of the record before it; for the first one the low half of the salt
//! 16  u64  version of the last commit in it
//! 24  u32  session: random for each opening of the database
//! 28  u32  the half was flushed up to this offset when the record was made
//! 32  u8   codec: 0 plain, 1 LZ4; 2 and 3 the same, sealed (see `cipher`); associated data are the half's salt and bytes 0..36
//! 33  [3]  0
//! 36  u32  CRC32 of the half's salt, bytes 0..36 and the stored payload
//! 40       payload, zeros up to a multiple of 8 bytes
//! ```

use crate::block::checksum::Hasher;
use crate::block::lz4;
use crate::cipher::{self, Cipher, Domain, NONCE_BYTES};

pub(super) const HEADER_BYTES: usize = 40;
/// Records start at multiples of this.
pub(super) const ALIGN: usize = 8;
/// Payloads below this length are not worth compressing.
const COMPRESS_FROM_BYTES: usize = 256;
const TAG: u32 = 0x4D4C_5231;
/// Added to the codec of a sealed payload.
const SEALED: u8 = 2;

/// Fields of a record's header, without lengths and checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordInfo {
    pub previous_crc: u32,
    pub version: u64,
    pub session: u32,
    /// Offset up to which the half was flushed when the record was written.
    pub flushed_to: u32,
}

/// Where a valid record stands in its chain.
pub(super) struct Link {
    pub info: RecordInfo,
    pub crc: u32,
    /// Length including header and padding.
    pub len: usize,
}

/// A valid record read from the log.
pub(super) struct Record {
    pub info: RecordInfo,
    pub crc: u32,
    /// Length including header and padding.
    pub len: usize,
    pub payload: Vec<u8>,
}

fn crc_of(salt: u64, header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

/// Length of a record with `stored` bytes of stored payload.
pub(super) fn record_len(stored: usize) -> usize {
    (HEADER_BYTES + stored).next_multiple_of(ALIGN)
}

/// Maximum length of the stored payload of a record with `len` bytes.
pub(super) fn stored_len(len: usize, cipher: &Cipher) -> usize {
    len + cipher.adds(cipher::OVERHEAD_BYTES)
}

/// Appends a record to `into`; returns its CRC.
pub(super) fn encode(
    salt: u64,
    info: &RecordInfo,
    payload: &[u8],
    compress: bool,
    cipher: &Cipher,
    into: &mut Vec<u8>,
) -> u32 {
    let start = into.len();
    let head = HEADER_BYTES + cipher.adds(NONCE_BYTES);
    into.resize(start + head, 0);
    let mut packed = usize::MAX;
    if compress && payload.len() >= COMPRESS_FROM_BYTES {
        packed = lz4::compress(payload, into);
    }
    let is_packed = packed < payload.len();
    if !is_packed {
        into.truncate(start + head);
        into.extend_from_slice(payload);
    }
    into.resize(into.len() + cipher.adds(cipher::TAG_BYTES), 0);
    let stored_len = into.len() - start - HEADER_BYTES;
    let (header, stored) = into[start..].split_at_mut(HEADER_BYTES);
    let mut put = |at: usize, part: &[u8]| header[at..at + part.len()].copy_from_slice(part);
    put(0, &(salt as u32 ^ TAG).to_le_bytes());
    put(4, &(stored_len as u32).to_le_bytes());
    put(8, &(payload.len() as u32).to_le_bytes());
    put(12, &info.previous_crc.to_le_bytes());
    put(16, &info.version.to_le_bytes());
    put(24, &info.session.to_le_bytes());
    put(28, &info.flushed_to.to_le_bytes());
    put(32, &[u8::from(is_packed) | if cipher.is_on() { SEALED } else { 0 }]);
    if cipher.is_on() {
        cipher.seal(Domain::LogRecord, &[&salt.to_le_bytes(), &header[..36]], stored);
    }
    let crc = crc_of(salt, &header[..36], stored);
    header[36..].copy_from_slice(&crc.to_le_bytes());
    into.resize(start + record_len(stored_len), 0);
    crc
}

/// The payload of a record as it is stored.
struct Stored<'a> {
    header: &'a [u8; HEADER_BYTES],
    codec: u8,
    raw_len: usize,
    bytes: &'a [u8],
}

/// Checks the record at the start of untrusted `bytes`; `None` unless whole, intact and of this half.
fn split(salt: u64, max_raw_bytes: usize, bytes: &[u8]) -> Option<(Link, Stored<'_>)> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if word(0) != salt as u32 ^ TAG {
        return None;
    }
    let (bytes_stored, raw_len) = (word(4) as usize, word(8) as usize);
    let stored = bytes.get(HEADER_BYTES..HEADER_BYTES.checked_add(bytes_stored)?)?;
    let crc = crc_of(salt, &header[..36], stored);
    if crc != word(36) || raw_len > max_raw_bytes {
        return None;
    }
    let link = Link {
        info: RecordInfo {
            previous_crc: word(12),
            version: u64::from(word(16)) | u64::from(word(20)) << 32,
            session: word(24),
            flushed_to: word(28),
        },
        crc,
        len: record_len(bytes_stored),
    };
    let stored = Stored {
        header,
        codec: header[32],
        raw_len,
        bytes: stored,
    };
    Some((link, stored))
}

/// As [`decode`], but expands no payload.
pub(super) fn find(salt: u64, max_raw_bytes: usize, cipher: &Cipher, bytes: &[u8]) -> Option<Link> {
    if cipher.is_on() {
        let Record { info, crc, len, .. } = decode(salt, max_raw_bytes, cipher, bytes)?;
        return Some(Link { info, crc, len });
    }
    let (link, stored) = split(salt, max_raw_bytes, bytes)?;
    let is_whole = match stored.codec {
        0 => stored.bytes.len() == stored.raw_len,
        codec => codec == 1,
    };
    is_whole.then_some(link)
}

/// Decodes the record at the start of untrusted `bytes`; `None` unless whole, intact, of this half,
/// and sealed if there is a cipher.
pub(super) fn decode(salt: u64, max_raw_bytes: usize, cipher: &Cipher, bytes: &[u8]) -> Option<Record> {
    let (Link { info, crc, len }, stored) = split(salt, max_raw_bytes, bytes)?;
    let Stored {
        header,
        mut codec,
        raw_len,
        bytes: mut stored,
    } = stored;
    let mut opened;
    if cipher.is_on() {
        opened = stored.to_vec();
        // A plain record fails, too: the codec is among the associated data.
        if !cipher.open(Domain::LogRecord, &[&salt.to_le_bytes(), &header[..36]], &mut opened) {
            return None;
        }
        codec ^= SEALED;
        stored = &opened[NONCE_BYTES..opened.len() - cipher::TAG_BYTES];
    }
    let payload = match codec {
        0 if stored.len() == raw_len => stored.to_vec(),
        1 => lz4::expand(stored, raw_len, |len| vec![0; len])?,
        _ => return None,
    };
    Some(Record {
        info,
        crc,
        len,
        payload,
    })
}

/// Record length that the header at the start of `bytes` claims; `None` without this half's tag, or
/// if it does not fit into the address space.
pub(super) fn claimed_len(salt: u64, bytes: &[u8]) -> Option<usize> {
    let tag = u32::from_le_bytes(*bytes.first_chunk()?);
    let stored = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
    let len = HEADER_BYTES.checked_add(stored as usize)?;
    let len = len.checked_next_multiple_of(ALIGN)?;
    (tag == salt as u32 ^ TAG).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INFO: RecordInfo = RecordInfo {
        previous_crc: 3,
        version: 1 << 40,
        session: 5,
        flushed_to: 6,
    };

    #[test]
    fn header_has_golden_bytes() {
        let mut bytes = Vec::new();
        let crc = encode(9, &INFO, b"abc", true, &Cipher::default(), &mut bytes);
        assert_eq!(bytes.len(), 48);
        assert_eq!(&bytes[..16], b"\x38\x52\x4c\x4d\x03\0\0\0\x03\0\0\0\x03\0\0\0");
        assert_eq!(&bytes[16..36], b"\0\0\0\0\0\x01\0\0\x05\0\0\0\x06\0\0\0\0\0\0\0");
        assert_eq!(bytes[36..40], crc.to_le_bytes());
        assert_eq!(&bytes[40..], b"abc\0\0\0\0\0");
    }

    /// An intact record that would take more memory than any commit may is none.
    #[test]
    fn a_payload_is_not_longer_than_the_log_allows() {
        for (payload, is_packed) in [([7; 300].to_vec(), true), ((0..=255).collect(), false)] {
            let mut bytes = Vec::new();
            encode(9, &INFO, &payload, true, &Cipher::default(), &mut bytes);
            assert_eq!(bytes[32] == 1, is_packed);
            for (limit, counts) in [(payload.len(), true), (payload.len() - 1, false)] {
                assert_eq!(decode(9, limit, &Cipher::default(), &bytes).is_some(), counts);
                assert_eq!(find(9, limit, &Cipher::default(), &bytes).is_some(), counts);
            }
        }
    }

    #[test]
    fn a_claimed_length_is_never_too_short() {
        let mut bytes = Vec::new();
        encode(9, &INFO, b"abc", true, &Cipher::default(), &mut bytes);
        assert_eq!(claimed_len(9, &bytes), Some(48));
        for stored in [u32::MAX, u32::MAX - 40, u32::MAX - 47, i32::MAX as u32] {
            bytes[4..8].copy_from_slice(&stored.to_le_bytes());
            let len = claimed_len(9, &bytes);
            assert!(len.is_none_or(|len| len > stored as usize), "{stored}: {len:?}");
        }
    }

    /// Whatever its codec says, a record that was not sealed is none where there is a cipher.
    #[cfg(feature = "encryption")]
    #[test]
    fn a_plain_record_is_none_in_an_encrypted_database() {
        let key = cipher::Key::new([1; 32]);
        let (_, cipher) = cipher::WrappedKey::create(&key, 7).unwrap();
        for len in [0, 3, 15, 16, 39, 40, 41, 300] {
            let mut bytes = Vec::new();
            encode(9, &INFO, &vec![5; len], true, &Cipher::default(), &mut bytes);
            let stored = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            for codec in 0..4 {
                bytes[32] = codec;
                let crc = crc_of(9, &bytes[..36], &bytes[HEADER_BYTES..HEADER_BYTES + stored]);
                bytes[36..40].copy_from_slice(&crc.to_le_bytes());
                assert!(split(9, 1 << 20, &bytes).is_some(), "its checksum is right");
                assert!(
                    find(9, 1 << 20, &cipher, &bytes).is_none(),
                    "{len} bytes, codec {codec}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn records_round_trip_and_every_damage_is_found(payload in prop::collection::vec(0u8..4, 0..700), at: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = Vec::new();
            let crc = encode(77, &INFO, &payload, true, &Cipher::default(), &mut bytes);
            let record = decode(77, 1 << 20, &Cipher::default(), &bytes).unwrap();
            let link = find(77, 1 << 20, &Cipher::default(), &bytes).unwrap();
            prop_assert_eq!((link.info, link.crc, link.len), (INFO, crc, bytes.len()));
            prop_assert_eq!((record.info, record.crc, record.len, &record.payload), (INFO, crc, bytes.len(), &payload));
            prop_assert!(decode(78, 1 << 20, &Cipher::default(), &bytes).is_none(), "another salt");
            let stored = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            let at = at.index(HEADER_BYTES + stored);
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(77, 1 << 20, &Cipher::default(), &bytes).is_none());
            prop_assert!(find(77, 1 << 20, &Cipher::default(), &bytes).is_none());
        }

        #[test]
        fn hostile_bytes_are_no_record(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(1, 1 << 20, &Cipher::default(), &bytes).is_none());
        }
    }
}
