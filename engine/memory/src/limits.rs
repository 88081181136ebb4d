//! Limits on names, and the form of hints: the same as in a database with a file.

/// Longest collection name in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Longest codec id in bytes.
pub(crate) const MAX_CODEC_BYTES: usize = 64;
/// First character of the names reserved for the engine.
pub(crate) const HIDDEN: char = '\0';

/// Key of an expiry hint: the expiry in big-endian order, so that hints sort by time, and the
/// record's key.
pub(crate) fn hint(expires: u64, key: &[u8]) -> Vec<u8> {
    [&expires.to_be_bytes(), key].concat()
}
