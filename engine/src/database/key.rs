//! The key of an encrypted database.

use super::Database;
use crate::cipher::Key;
use crate::error::{Error, Result};
use crate::state::Credentials;

impl Database {
    /// Changes the key of an encrypted database: from now on it opens with `key` only.
    ///
    /// The data keep their own key, which both superblocks now have sealed under the new one, so no
    /// block is rewritten. Two superblocks are written and flushed, one after the other; until the
    /// first of them is durable, the database opens with the old key, afterwards with the new one.
    ///
    /// The old key still opens backups and copies of the files made before, and unwraps from them the
    /// data key, which also decrypts what is written later. After a leak, restore a backup into a new
    /// database instead.
    ///
    /// # Errors
    /// [`Error::NotEncrypted`], [`Error::ReadOnly`], and those of the storage, after which the key is
    /// the old or the new one.
    pub fn change_key(&self, key: &Key) -> Result<()> {
        let mut writer = self.shared.writable()?;
        let old = writer.superblock.encryption.as_ref().ok_or(Error::NotEncrypted)?;
        let encryption = old.rewrapped(key, writer.superblock.database_id);
        writer.replace_encryption(&self.shared, &encryption)?;
        self.shared.set_credentials(Some(Credentials {
            key: key.clone(),
            encryption: encryption.clone(),
        }));
        writer.replace_encryption(&self.shared, &encryption)
    }
}
