//! Encryption: authenticated encryption of blocks, log records and superblocks.
//!
//! ```text
//! sealed bytes
//!   0  [24]  nonce
//!  24  [n]   ciphertext
//!  24+n [16] tag
//! ```
//! The cipher is XChaCha20-Poly1305 under the database's data key. Each nonce is drawn from the
//! system's generator when it is used and never stored for later, so no crash, restore, copy or
//! clone of the files, and no copy of the process's memory, makes one come back (invariant I32).
//! The associated data names the kind of the sealed bytes, the database, and the place, so that
//! nothing sealed can stand in for anything else.
//!
//! The data key is random. The superblock has it sealed under the user's key, so that key can be
//! changed without touching the data.
//!
//! Re-encryption ([`Database::reencrypt`](crate::Database::reencrypt)) gives the database another data
//! key. Blocks of its generation and later are sealed under the new key, older ones under the previous
//! key, which the superblock keeps, sealed under the new one, until no block needs it.
//!
//! Without the feature `encryption` there are no keys, every cipher is off, and the compiler removes
//! what depends on them.

#[cfg(not(feature = "encryption"))]
mod absent;
#[cfg(feature = "encryption")]
mod aead;
#[cfg(feature = "encryption")]
mod key;

#[cfg(feature = "encryption")]
pub(crate) use aead::{Cipher, CurrentCipher, PreviousKey, WrappedKey, not_encrypted};
#[cfg(all(feature = "encryption", not(target_family = "wasm")))]
pub use key::system_random;
#[cfg(feature = "encryption")]
pub use key::{Key, PassphraseCost};

#[cfg(not(feature = "encryption"))]
pub use absent::Key;
#[cfg(not(feature = "encryption"))]
pub(crate) use absent::{Cipher, CurrentCipher, WrappedKey, not_encrypted};

#[cfg(feature = "encryption")]
const KEY_BYTES: usize = 32;
pub(crate) const NONCE_BYTES: usize = 24;
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes that encryption adds.
pub(crate) const OVERHEAD_BYTES: usize = NONCE_BYTES + TAG_BYTES;

/// The kind of sealed bytes: first byte of their associated data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Domain {
    BackupFrame = b'F',
    #[cfg(feature = "encryption")]
    Block = b'B',
    #[cfg(feature = "encryption")]
    DataKey = b'K',
    LogRecord = b'L',
    #[cfg(feature = "encryption")]
    PreviousKey = b'P',
    Superblock = b'S',
}
