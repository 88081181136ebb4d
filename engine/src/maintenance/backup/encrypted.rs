//! Streams of encrypted databases.

use super::frame;
use super::header::{HEADER_BYTES, Header};
use crate::block::checksum;
use crate::cipher::{Cipher, Domain, Key, NONCE_BYTES, OVERHEAD_BYTES, TAG_BYTES};
use crate::error::{Error, Result};
use crate::pages::Encryption;

/// Length of the key part behind the header: the wrapped data key, zeros, and a CRC32 of both.
pub(super) const WRAPPED_BYTES: usize = 208;
const CRC_AT: usize = WRAPPED_BYTES - 4;

/// Seals the frames of one stream.
pub(super) struct FrameCipher {
    cipher: Cipher,
    /// The stream's header: no frame fits into another stream.
    header: [u8; HEADER_BYTES],
}

impl FrameCipher {
    /// Begins a stream; also returns the key part that follows its header.
    pub(super) fn create(encryption: &Encryption, header: &[u8; HEADER_BYTES]) -> (Self, [u8; WRAPPED_BYTES]) {
        let cipher = encryption.cipher();
        let wrapped = encryption.encode_wrapped_key();
        let mut bytes = [0; WRAPPED_BYTES];
        bytes[..wrapped.len()].copy_from_slice(&wrapped);
        let crc = checksum::hash(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        let header = *header;
        (Self { cipher, header }, bytes)
    }

    /// Opens a stream with the key part that follows its header.
    pub(super) fn open(
        wrapped: &[u8; WRAPPED_BYTES],
        key: Option<&Key>,
        header: &Header,
        bytes: &[u8; HEADER_BYTES],
    ) -> Result<Self> {
        let damaged = || Error::corrupt_backup("what follows the header is damaged", HEADER_BYTES as u64);
        if frame::crc_at_end(wrapped) != checksum::hash(&wrapped[..CRC_AT]) {
            return Err(damaged());
        }
        let key = key.ok_or(Error::WrongKey { is_missing: true })?;
        let encryption = Encryption::decode_wrapped_key(&wrapped[..CRC_AT]).ok_or_else(damaged)?;
        let cipher = encryption.unlock(key, header.database_id)?;
        Ok(Self { cipher, header: *bytes })
    }

    fn context<'a>(&'a self, number: &'a [u8; 8], frame_header: &'a [u8]) -> [&'a [u8]; 3] {
        [&self.header, number, &frame_header[..frame::CRC_AT]]
    }

    /// Seals a frame's stored data, in which the text stands.
    pub(super) fn seal(&self, number: u64, frame_header: &[u8], stored: &mut [u8]) {
        let number = number.to_le_bytes();
        let context = self.context(&number, frame_header);
        self.cipher.seal(Domain::BackupFrame, &context, stored);
    }

    /// Opens a frame's stored data; returns the text.
    pub(super) fn open_frame(&self, number: u64, frame_header: &[u8], mut stored: Vec<u8>) -> Option<Vec<u8>> {
        let number = number.to_le_bytes();
        let context = self.context(&number, frame_header);
        if stored.len() < OVERHEAD_BYTES || !self.cipher.open(Domain::BackupFrame, &context, &mut stored) {
            return None;
        }
        stored.truncate(stored.len() - TAG_BYTES);
        stored.drain(..NONCE_BYTES);
        Some(stored)
    }
}
