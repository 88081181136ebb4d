//! What names and hints are in a database with a file, and are here as well.

/// Longest name of a collection in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Longest codec id in bytes.
pub(crate) const MAX_CODEC_BYTES: usize = 64;
/// First character of the names that no user can give.
pub(crate) const HIDDEN: char = '\0';

/// Finds a record that expires: the expiry, in the order of numbers, and the key.
pub(crate) fn hint(expires: u64, key: &[u8]) -> Vec<u8> {
    [&expires.to_be_bytes(), key].concat()
}
