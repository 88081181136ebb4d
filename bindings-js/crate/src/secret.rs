//! Keys of encrypted databases. Builds without the feature `encryption` know none.

use mangrove_engine::{Database, Error, Result};

use crate::protocol::Writer;

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
    database.change_key(&to_key(secret)?.ok_or(missing)?)
}

/// Runs up to `slices` slices of a re-encryption. Writes whether it is done, whether it waits for values
/// that are being staged, the bytes moved so far, and those in use.
#[cfg(feature = "encryption")]
pub(crate) fn reencrypt(database: &Database, slices: u64, begins: bool, out: &mut Writer) -> Result<()> {
    use mangrove_engine::{ReencryptEnd, ReencryptOptions};
    use std::ops::ControlFlow;

    let options = ReencryptOptions {
        continues_only: !begins,
        ..ReencryptOptions::default()
    };
    let mut left = slices.max(1);
    let (mut moved_bytes, mut used_bytes) = (0, 0);
    let end = database.reencrypt(options, &mut |progress| {
        (moved_bytes, used_bytes) = (progress.moved_bytes, progress.used_bytes);
        left -= 1;
        if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    out.flag(end == ReencryptEnd::Done);
    out.flag(end == ReencryptEnd::Staged);
    out.uv(moved_bytes);
    out.uv(used_bytes);
    Ok(())
}

/// No database is encrypted here.
#[cfg(not(feature = "encryption"))]
fn refuse() -> Result<()> {
    Err(Error::InvalidArgument {
        what: "the database is not encrypted".into(),
    })
}

/// Changes the key of a database.
#[cfg(not(feature = "encryption"))]
pub(crate) fn change_key(_: &Database, _: &[u8]) -> Result<()> {
    refuse()
}

/// Runs slices of a re-encryption.
#[cfg(not(feature = "encryption"))]
pub(crate) fn reencrypt(_: &Database, _: u64, _: bool, _: &mut Writer) -> Result<()> {
    refuse()
}
