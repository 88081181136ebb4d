//! The key of an encrypted database.

use super::Database;
use crate::cipher::Key;
use crate::error::{Error, Result};
use crate::pages::Encryption;
use crate::state::Credentials;

/// Tells whether a key is a database's, without opening the database: the sealed data key, as
/// the superblock has it. It is no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedKey(Vec<u8>);

impl SealedKey {
    /// Decodes the bytes that [`as_bytes`](Self::as_bytes) returned.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Returns it as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether a key opens it.
    ///
    /// # Errors
    /// [`Error::WrongKey`] if not, [`Error::Io`] if the key cannot be derived for want of memory.
    pub fn check(&self, key: &Key) -> Result<()> {
        let wrong = Error::WrongKey { is_missing: false };
        let Some((id, wrapped)) = self.0.split_first_chunk() else {
            return Err(wrong);
        };
        let encryption = Encryption::decode_wrapped_key(wrapped).ok_or(wrong)?;
        encryption.unlock(key, u128::from_le_bytes(*id)).map(|_| ())
    }
}

impl Database {
    /// Returns the sealed data key; `None` if the database is not encrypted. O(1).
    #[must_use]
    pub fn sealed_key(&self) -> Option<SealedKey> {
        let encryption = self.shared.credentials()?.encryption;
        let mut bytes = self.shared.config.database_id.to_le_bytes().to_vec();
        bytes.extend_from_slice(&encryption.encode_wrapped_key());
        Some(SealedKey(bytes))
    }

    /// Changes the key of an encrypted database: from now on it opens with `key` only.
    ///
    /// The data keep their own key, which both superblocks now have sealed under the new one, so no
    /// block is rewritten. Two superblocks are written and flushed, one after the other; until the
    /// first of them is durable, the database opens with the old key, afterwards with the new one.
    ///
    /// The old key still opens backups and copies of the files made before, and unwraps from them the
    /// data key, which also decrypts what is written later. After a leak, call
    /// [`reencrypt`](Self::reencrypt), too.
    ///
    /// # Errors
    /// [`Error::NotEncrypted`], [`Error::ReadOnly`], and those of the storage, after which the key is
    /// the old or the new one.
    pub fn change_key(&self, key: &Key) -> Result<()> {
        let mut writer = self.shared.writable()?;
        let old = writer.superblock.encryption.as_ref().ok_or(Error::NotEncrypted)?;
        let encryption = old.rewrapped(key, writer.superblock.database_id)?;
        let credentials = Credentials {
            key: key.clone(),
            encryption,
        };
        writer.replace_encryption(&self.shared, credentials, |_| ())
    }
}
