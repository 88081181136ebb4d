//! The end of the log as of when it was read.

use super::record;
use crate::cipher::Cipher;
use crate::error::Result;
use crate::storage::StorageFile;

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
