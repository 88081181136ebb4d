//! A record as returned by reads.

/// A record with its metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its value.
    pub value: Vec<u8>,
    /// Version of the commit that wrote it, for later comparison; 0 inside the optimistic
    /// transaction that wrote it.
    pub version: u64,
    /// When it expires, in milliseconds since 1970; `None`: never.
    pub expires_at: Option<u64>,
}

impl Entry {
    /// Creates an entry with these fields.
    #[must_use]
    pub fn new(value: Vec<u8>, version: u64, expires_at: Option<u64>) -> Self {
        Self {
            value,
            version,
            expires_at,
        }
    }
}
