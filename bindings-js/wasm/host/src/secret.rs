//! What unlocks an encrypted database, as JavaScript hands it over.
//!
//! ```text
//! secret
//!   0  [1]  1: a key
//!   1  [32] the key
//! or
//!   0  [1]  2: a passphrase
//!   1  [4]  memory in KiB, for a new database or a changed key
//!   5  [4]  passes, for the same
//!   9       the passphrase in UTF-8
//! ```
//! Numbers are little endian.

use mangrove_engine::{Error, Key, PassphraseCost, Result};
use wasm_bindgen::prelude::*;

const KEY: u8 = 1;
const PASSPHRASE: u8 = 2;

/// Converts a secret; `None` if it is empty.
///
/// # Errors
/// [`Error::InvalidArgument`]
pub fn to_key(secret: &[u8]) -> Result<Option<Key>> {
    let malformed = || Error::InvalidArgument {
        what: "a key has 32 bytes".into(),
    };
    let Some((kind, rest)) = secret.split_first() else {
        return Ok(None);
    };
    match *kind {
        KEY => {
            let bytes = rest.try_into().map_err(|_| malformed())?;
            Ok(Some(Key::with_random(bytes, fill_random)))
        }
        PASSPHRASE => {
            let (memory_kib, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
            let (passes, text) = rest.split_first_chunk().ok_or_else(malformed)?;
            let cost = PassphraseCost {
                memory_kib: u32::from_le_bytes(*memory_kib),
                passes: u32::from_le_bytes(*passes),
            };
            Key::passphrase_with_random(text, cost, fill_random).map(Some)
        }
        _ => Err(malformed()),
    }
}

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = crypto, js_name = getRandomValues)]
    fn get_random_values(buffer: &mut [u8]);
}

/// Fills a buffer from JavaScript's cryptographic generator.
fn fill_random(buffer: &mut [u8]) {
    get_random_values(buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_keys_or_passphrases() {
        let with = |kind: u8, rest: &[u8]| [&[kind], rest].concat();
        assert!(matches!(to_key(&[]), Ok(None)));
        assert!(matches!(to_key(&with(KEY, &[7; 32])), Ok(Some(_))));
        let passphrase = [&32_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"p"].concat();
        assert!(matches!(to_key(&with(PASSPHRASE, &passphrase)), Ok(Some(_))));
        let malformed = [
            with(KEY, &[7; 31]),
            with(KEY, &[7; 33]),
            with(PASSPHRASE, &passphrase[..7]),
            with(PASSPHRASE, &passphrase[..8]),
            with(3, &[7; 32]),
        ];
        for secret in malformed {
            assert!(
                matches!(to_key(&secret), Err(Error::InvalidArgument { .. })),
                "{secret:?}"
            );
        }
    }
}
