//! Reads all intact copies of the superblock, for salvage.

use super::superblock::{AREA_BYTES, COPY_OFFSETS, RECORD_BYTES, SLOT_BYTES, Superblock, unlock_source};
use crate::cipher::{Cipher, Key};
use crate::error::{Error, Result};
use crate::storage::StorageFile;

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
