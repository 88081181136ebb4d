//! One frame: a header of 16 bytes and the stored data.

use super::encrypted::FrameCipher;
use crate::block::checksum::Hasher;
use crate::cipher::OVERHEAD_BYTES;

/// Maximum raw data per frame.
pub(crate) const FRAME_BYTES: usize = 256 << 10;
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const CRC_AT: usize = HEADER_BYTES - 4;
const PACKED: u8 = 1;
const SEALED: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    Data = 1,
    End = 2,
}

/// A frame's header without the checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameInfo {
    pub kind: FrameKind,
    pub is_packed: bool,
    pub is_sealed: bool,
    pub stored_len: usize,
    pub raw_len: usize,
}

fn crc_of(previous_crc: u32, header: &[u8], stored: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&previous_crc.to_le_bytes());
    hasher.update(&header[..CRC_AT]);
    hasher.update(stored);
    hasher.finalize()
}

/// Returns the checksum at the end of a stream or frame header.
pub(super) fn crc_at_end(header: &[u8]) -> u32 {
    header
        .last_chunk()
        .map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes))
}

impl FrameInfo {
    /// Fills in the header in front of the stored data, and seals that as the frame with `number`
    /// if there is a cipher; returns the frame's CRC.
    pub(super) fn finish(&self, previous_crc: u32, cipher: Option<&FrameCipher>, number: u64, frame: &mut [u8]) -> u32 {
        let (header, stored) = frame.split_at_mut(HEADER_BYTES);
        header[0] = self.kind as u8;
        header[1] = if self.is_packed { PACKED } else { 0 } | if self.is_sealed { SEALED } else { 0 };
        header[4..8].copy_from_slice(&(self.stored_len as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(self.raw_len as u32).to_le_bytes());
        if let Some(cipher) = cipher {
            cipher.seal(number, header, stored);
        }
        let crc = crc_of(previous_crc, header, stored);
        header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Decodes an untrusted header.
    pub(super) fn decode(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let info = Self {
            kind: match header[0] {
                1 => FrameKind::Data,
                2 => FrameKind::End,
                _ => return None,
            },
            is_packed: header[1] & PACKED != 0,
            is_sealed: header[1] & SEALED != 0,
            stored_len: word(4) as usize,
            raw_len: word(8) as usize,
        };
        let added = if info.is_sealed { OVERHEAD_BYTES } else { 0 };
        let fits = if info.is_packed {
            info.stored_len < info.raw_len.saturating_add(added)
        } else {
            info.stored_len == info.raw_len.saturating_add(added)
        };
        let is_known = header[2..4] == [0; 2] && header[1] <= PACKED | SEALED;
        (is_known && fits && (1..=FRAME_BYTES).contains(&info.raw_len)).then_some(info)
    }

    /// Returns the frame's CRC if it is the one written after the frame with `previous_crc`.
    pub(super) fn check(previous_crc: u32, header: &[u8; HEADER_BYTES], stored: &[u8]) -> Option<u32> {
        let crc = crc_of(previous_crc, header, stored);
        (crc == crc_at_end(header)).then_some(crc)
    }
}

/// Totals of a stream, stored in the end frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    pub frames: u64,
    pub data_bytes: u64,
    /// Records of a full backup, commits of an incremental one.
    pub items: u64,
}

impl Totals {
    const BYTES: usize = 24;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (at, part) in [self.frames, self.data_bytes, self.items].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&part.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let [frames, data_bytes, items] = [words[0], words[1], words[2]].map(u64::from_le_bytes);
        Some(Self {
            frames,
            data_bytes,
            items,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_golden_bytes() {
        let info = FrameInfo {
            kind: FrameKind::Data,
            is_packed: false,
            is_sealed: false,
            stored_len: 3,
            raw_len: 3,
        };
        let mut frame = [&[0; HEADER_BYTES][..], b"abc"].concat();
        let crc = info.finish(7, None, 1, &mut frame);
        assert_eq!(&frame[..12], b"\x01\0\0\0\x03\0\0\0\x03\0\0\0");
        assert_eq!(
            crc,
            crate::block::checksum::hash(b"\x07\0\0\0\x01\0\0\0\x03\0\0\0\x03\0\0\0abc")
        );
        let header = frame.first_chunk().unwrap();
        assert_eq!(FrameInfo::decode(header), Some(info));
        assert_eq!(FrameInfo::check(7, header, b"abc"), Some(crc));
        assert_eq!(FrameInfo::check(8, header, b"abc"), None);
        assert_eq!(FrameInfo::check(7, header, b"abd"), None);
    }

    #[test]
    fn the_end_frame_has_golden_bytes() {
        let totals = Totals {
            frames: 1,
            data_bytes: 2,
            items: 3,
        };
        let bytes = totals.encode();
        assert_eq!(&bytes, b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(Totals::decode(&bytes), Some(totals));
        assert_eq!(Totals::decode(&bytes[1..]), None);
    }
}
