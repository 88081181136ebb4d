//! The key of an encrypted database, which stands in a file: arguments can be seen by other users of
//! the machine, and stay in the shell's history.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Args;
use mangrove_engine::{Key, Options, PassphraseCost, system_random};

use crate::failure::{Failure, Result};

const KEY_BYTES: usize = 32;
/// Longest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 16;

#[derive(Args, Clone, Default)]
pub(crate) struct KeyArguments {
    /// File with the key of an encrypted database: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "passphrase_file")]
    key_file: Option<PathBuf>,
    /// File with the passphrase of an encrypted database; a line end after it is not part of it.
    #[arg(long, value_name = "FILE", global = true)]
    passphrase_file: Option<PathBuf>,
}

static ARGUMENTS: OnceLock<KeyArguments> = OnceLock::new();
/// Read once: a copy of a key from a passphrase remembers what was derived.
static KEY: OnceLock<Option<Key>> = OnceLock::new();

impl KeyArguments {
    /// Makes them those of the whole process.
    pub(crate) fn install(self) {
        let _ = ARGUMENTS.set(self);
    }

    fn to_key(&self) -> Result<Option<Key>> {
        match (&self.key_file, &self.passphrase_file) {
            (Some(file), _) => read_key(file).map(Some),
            (None, Some(file)) => read_passphrase(file, PassphraseCost::default()).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Returns options of databases, with the user's key.
pub(crate) fn options() -> Result<Options> {
    let key = match KEY.get() {
        Some(key) => key,
        None => {
            let key = ARGUMENTS.get().map_or(Ok(None), KeyArguments::to_key)?;
            KEY.get_or_init(|| key)
        }
    };
    Ok(Options {
        key: key.clone(),
        ..Options::default()
    })
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let failed = |error: &std::io::Error| Failure::io(&format!("reading {}", file.display()), error);
    let opened = File::open(file).map_err(|error| failed(&error))?;
    opened
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    Ok(bytes)
}

/// Removes one line end.
fn without_line_end(bytes: &[u8]) -> &[u8] {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn from_hex(digits: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut key = [0; KEY_BYTES];
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(key)
}

/// Reads a key.
pub(crate) fn read_key(file: &Path) -> Result<Key> {
    let bytes = read(file)?;
    let key = match <[u8; KEY_BYTES]>::try_from(&*bytes) {
        Ok(key) => key,
        Err(_) => from_hex(without_line_end(&bytes)).ok_or_else(|| {
            let file = file.display();
            Failure::argument(format!(
                "{file} holds no key: it has to have 32 bytes, or 64 hexadecimal digits"
            ))
        })?,
    };
    Ok(Key::with_random(key, system_random))
}

/// Reads a passphrase. The cost is for a new database and for a changed key.
pub(crate) fn read_passphrase(file: &Path, cost: PassphraseCost) -> Result<Key> {
    let bytes = read(file)?;
    let text = without_line_end(&bytes);
    if text.is_empty() {
        return Err(Failure::argument(format!(
            "{} holds no passphrase: it is empty",
            file.display()
        )));
    }
    Ok(Key::passphrase_with_random(text, cost, system_random)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_hexadecimal_digits() {
        let digits = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
        assert_eq!(from_hex(digits.as_bytes()), Some(std::array::from_fn(|at| at as u8)));
        assert_eq!(from_hex(digits.replace('A', "g").as_bytes()), None);
        assert_eq!(from_hex(&digits.as_bytes()[..62]), None);
    }

    #[test]
    fn one_line_end_is_no_part_of_a_passphrase() {
        for (bytes, line) in [
            ("a b", "a b"),
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("\n", ""),
        ] {
            assert_eq!(without_line_end(bytes.as_bytes()), line.as_bytes());
        }
    }
}
