//! The header of a stream.

use crate::block::checksum;
use crate::error::{Error, Result};

pub(super) const HEADER_BYTES: usize = 64;
const CRC_AT: usize = HEADER_BYTES - 4;
const MAGIC: [u8; 8] = *b"MANGRBAK";
/// Format of a database that is not encrypted.
const FORMAT_VERSION: u16 = 1;
/// Format of an encrypted one.
const SEALED_VERSION: u16 = 2;
/// Newest format this build reads.
const NEWEST_VERSION: u16 = if cfg!(feature = "encryption") {
    SEALED_VERSION
} else {
    FORMAT_VERSION
};
/// As in a superblock.
const MAX_VERSION: u64 = 1 << 63;

/// The header of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Node size of the database, which bounds the keys.
    pub node_bytes: u32,
    pub database_id: u128,
    /// Version that the database has once this backup is restored.
    pub version: u64,
    /// Version that the database must have before; 0 for a full backup.
    pub base: u64,
    /// Records of all collections of a full backup.
    pub records: u64,
    /// Collections of a full backup.
    pub collections: u32,
}

impl Header {
    pub(super) fn encode(&self, is_sealed: bool) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        let version = if is_sealed { SEALED_VERSION } else { FORMAT_VERSION };
        put(8, &version.to_le_bytes());
        put(12, &self.node_bytes.to_le_bytes());
        put(16, &self.database_id.to_le_bytes());
        put(32, &self.version.to_le_bytes());
        put(40, &self.base.to_le_bytes());
        put(48, &self.records.to_le_bytes());
        put(56, &self.collections.to_le_bytes());
        let crc = checksum::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Whether a stream that starts with these bytes, possibly fewer than a header, can be a
    /// backup.
    pub(super) fn is_ours(front: &[u8]) -> bool {
        let len = front.len().min(MAGIC.len());
        front[..len] == MAGIC[..len]
    }

    /// Decodes an untrusted header; also returns whether the stream is sealed.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(Self, bool)> {
        let damaged = |what: &str| Error::corrupt_backup(what, 0);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(CRC_AT) != checksum::hash(&bytes[..CRC_AT]) {
            return Err(damaged("the checksum of the header is wrong"));
        }
        let found = word(8) as u16;
        if found == SEALED_VERSION && !cfg!(feature = "encryption") {
            return Err(Error::WrongKey { is_missing: true });
        }
        if found > NEWEST_VERSION {
            return Err(Error::VersionUnsupported {
                found,
                supported: NEWEST_VERSION,
            });
        }
        let header = Self {
            node_bytes: word(12),
            database_id: u128::from(long(16)) | u128::from(long(24)) << 64,
            version: long(32),
            base: long(40),
            records: long(48),
            collections: word(56),
        };
        let is_possible = (256..=65536).contains(&header.node_bytes)
            && header.version <= MAX_VERSION
            && (header.base == 0 || header.base < header.version);
        if found == 0 || !is_possible {
            return Err(damaged("the header is inconsistent"));
        }
        Ok((header, found == SEALED_VERSION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        node_bytes: 16384,
        database_id: 0x0102,
        version: 7,
        base: 3,
        records: 5,
        collections: 2,
    };

    #[test]
    fn headers_have_golden_bytes() {
        let bytes = HEADER.encode(false);
        assert_eq!(&bytes[..16], b"MANGRBAK\x01\0\0\0\0\x40\0\0");
        assert_eq!(&bytes[16..32], b"\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&bytes[32..48], b"\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(&bytes[48..60], b"\x05\0\0\0\0\0\0\0\x02\0\0\0");
        assert_eq!(Header::decode(&bytes).unwrap(), (HEADER, false));
        assert_eq!(Header::decode(&HEADER.encode(true)).unwrap(), (HEADER, true));
    }

    #[test]
    fn impossible_headers_are_refused() {
        let max = Header {
            version: MAX_VERSION,
            ..HEADER
        };
        assert!(Header::decode(&max.encode(false)).is_ok());
        for bad in [
            Header { node_bytes: 0, ..max },
            Header {
                node_bytes: 65537,
                ..max
            },
            Header {
                version: MAX_VERSION + 1,
                ..max
            },
            Header { base: 7, ..HEADER },
        ] {
            assert!(matches!(
                Header::decode(&bad.encode(true)),
                Err(Error::CorruptBackup(_))
            ));
        }
        let mut newer = HEADER.encode(false);
        newer[8] = 3;
        let crc = checksum::hash(&newer[..CRC_AT]);
        newer[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            Header::decode(&newer),
            Err(Error::VersionUnsupported { found: 3, .. })
        ));
    }
}
