//! A record as reads give it.

/// A record with what is known about it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its value.
    pub value: Vec<u8>,
    /// Version of the commit that wrote it, to be compared with later; 0 inside the optimistic transaction that wrote it.
    pub version: u64,
    /// When it expires, in milliseconds since 1970; `None`: never.
    pub expires_at: Option<u64>,
}

impl Entry {
    /// An entry with these fields.
    #[must_use]
    pub fn new(value: Vec<u8>, version: u64, expires_at: Option<u64>) -> Self {
        Self {
            value,
            version,
            expires_at,
        }
    }
}
