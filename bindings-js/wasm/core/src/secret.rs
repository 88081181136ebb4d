//! Keys of encrypted databases. Builds without the feature `encryption` know none.

use mangrove_engine::{Database, Error, Result};

#[cfg(feature = "encryption")]
use mangrove_host::secret::to_key;

/// Checks a secret against the sealed key of a database that is open elsewhere: length of the sealed
/// key u8, the sealed key, the secret.
#[cfg(feature = "encryption")]
pub(crate) fn check(sealed_and_secret: &[u8]) -> Result<()> {
    let (len, rest) = sealed_and_secret.split_first().unwrap_or((&0, &[]));
    let (sealed, secret) = rest.split_at_checked(usize::from(*len)).unwrap_or_default();
    let missing = Error::WrongKey { is_missing: true };
    mangrove_engine::SealedKey::from_bytes(sealed).check(&to_key(secret)?.ok_or(missing)?)
}

/// Changes the key of a database.
#[cfg(feature = "encryption")]
pub(crate) fn change_key(database: &Database, secret: &[u8]) -> Result<()> {
    let missing = Error::WrongKey { is_missing: true };
    let changed = database.change_key(&to_key(secret)?.ok_or(missing)?);
    changed.map_err(as_without_encryption)
}

/// A call that only encrypted databases have is refused by builds with and without encryption alike.
#[cfg(feature = "encryption")]
pub(crate) fn as_without_encryption(error: Error) -> Error {
    match error {
        Error::NotEncrypted => not_encrypted(),
        other => other,
    }
}

pub(crate) fn not_encrypted() -> Error {
    Error::InvalidArgument {
        what: "the database is not encrypted".into(),
    }
}

/// Changes the key of a database.
#[cfg(not(feature = "encryption"))]
pub(crate) fn change_key(_: &Database, _: &[u8]) -> Result<()> {
    Err(not_encrypted())
}
