//! The binary protocol between the host language and the engine: requests in, replies out, no I/O.
//!
//! Little endian. `uv` is an unsigned LEB128 of at most 64 bits, `bytes` a `uv` length and that
//! many bytes, `str` `bytes` of UTF-8. A message is a sequence of requests, its answer their
//! replies in the same order. Requests cross a language boundary, so nothing here trusts a length.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::{MAX_CHUNK_ITEMS, ReplyStart, Writer};

/// Size in bytes at which a reply is cut: what is left is asked for again. A reply exceeds it by at
/// most one value, so that memory need not grow with what a client asks for at once.
pub const REPLY_BYTES: usize = 8 << 20;

/// In place of a value's flag: the reply has no more values.
pub(crate) const CUT: u8 = 2;

/// Declares flags, as constants and as a table for [`typescript`](crate::request::typescript).
macro_rules! flags {
    ($(#[$about:meta])* $table:ident { $($flag:ident $name:literal = $value:literal),* $(,)? }) => {
        $(pub(crate) const $flag: u8 = $value;)*
        $(#[$about])*
        pub(crate) const $table: &[(&str, u8)] = &[$(($name, $flag)),*];
    };
}

flags! {
    /// Ends of a range.
    RANGE_FLAGS {
        HAS_LOWER "hasLower" = 1,
        LOWER_EXCLUSIVE "lowerExclusive" = 2,
        HAS_UPPER "hasUpper" = 4,
        UPPER_EXCLUSIVE "upperExclusive" = 8,
    }
}

flags! {
    /// Direction, content and end of a scan.
    SCAN_FLAGS {
        REVERSE "reverse" = 1,
        KEYS "keys" = 2,
        VALUES "values" = 4,
        KEEP "keep" = 8,
        META "meta" = 16,
    }
}

flags! {
    /// Kinds of changes in a batch.
    BATCH_FLAGS {
        BATCH_SET "set" = 0,
        BATCH_DELETE "delete" = 1,
        BATCH_SET_EXPIRING "setExpiring" = 2,
        BATCH_CHECK "check" = 3,
        BATCH_SET_INDEXED "setIndexed" = 4,
    }
}

flags! {
    /// What is left to do after a message.
    EXECUTE_FLAGS {
        AWAITS_FLUSH "awaitsFlush" = 1,
        NEEDS_FLUSH "needsFlush" = 2,
        LACKS_LAZY "lacksLazy" = 4,
        IS_CUT "isCut" = 8,
        OWES_FLUSH "owesFlush" = 16,
    }
}

flags! {
    /// Indexes into the engine's frame of 32-bit words: each part has an address and a length in
    /// bytes, but for the cut, which has a place in the message and a number of replies.
    FRAME_PARTS {
        FRAME_REQUEST "request" = 0,
        FRAME_REPLY "reply" = 2,
        FRAME_STATE "state" = 4,
        FRAME_WAKES "wakes" = 6,
        FRAME_CUT "cut" = 8,
    }
}

flags! {
    /// First byte of a reply.
    REPLY_STATUS {
        OK "ok" = 0,
        FAILED "failed" = 1,
        AGAIN "again" = 2,
    }
}

flags! {
    /// How a client's schema version stands to that of the database.
    STANDINGS {
        STANDING_CURRENT "current" = 0,
        STANDING_UPGRADES "upgrades" = 1,
        STANDING_WAITS "waits" = 2,
        STANDING_NEWER "newer" = 3,
        STANDING_INTERRUPTED "interrupted" = 4,
    }
}

flags! {
    /// Flags of an error, after its message.
    ERROR_FLAGS {
        RETRYABLE "retryable" = 1,
        HAS_KEYS "hasKeys" = 2,
    }
}

/// Which state of the database a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The newest state.
    Current,
    /// A snapshot or transaction, by the id that the client gave it.
    Opened(u64),
}

/// Limits of one reply of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLimit {
    /// Maximum number of items.
    pub items: u64,
    /// Size in bytes at which no further item is added.
    pub bytes: u64,
}

/// Direction, content and end of a scan.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanFlags(u8);

impl ScanFlags {
    /// Returns the byte that encodes the flags.
    pub fn byte(self) -> u8 {
        self.0
    }

    /// Decodes the flags.
    pub fn of(byte: u8) -> Self {
        Self(byte)
    }

    /// Whether the scan runs from the last key to the first.
    pub fn reverse(self) -> bool {
        self.0 & REVERSE != 0
    }

    /// Whether replies contain keys.
    pub fn keys(self) -> bool {
        self.0 & KEYS != 0
    }

    /// Whether replies contain values.
    pub fn values(self) -> bool {
        self.0 & VALUES != 0
    }

    /// Whether the scan stays open at its end until it is closed, so that a seek can go back.
    pub fn keep(self) -> bool {
        self.0 & KEEP != 0
    }

    /// Whether replies contain versions and expiry times.
    pub fn meta(self) -> bool {
        self.0 & META != 0
    }
}

/// Options of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Direction, content and end.
    pub flags: ScanFlags,
    /// Items skipped before the first.
    pub offset: u64,
    /// Maximum number of items in total.
    pub limit: Option<u64>,
    /// Limits of the first reply.
    pub chunk: ChunkLimit,
}

/// One change in a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchOp<'a> {
    /// Inserts or replaces a record.
    Set {
        /// Index of the collection.
        collection: u64,
        /// Encoded key.
        key: &'a [u8],
        /// Encoded value.
        value: &'a [u8],
        /// Expiry time in milliseconds since 1970.
        expires_at: Option<u64>,
    },
    /// As `Set`, in a collection with indexes.
    SetIndexed {
        /// Index of the collection.
        collection: u64,
        /// Encoded key.
        key: &'a [u8],
        /// Encoded value.
        value: &'a [u8],
        /// Expiry time in milliseconds since 1970.
        expires_at: Option<u64>,
        /// For [`index_keys`](Reader::index_keys): for each index that the client uses, the number
        /// of index keys, and these.
        index_keys: &'a [u8],
    },
    /// Removes a record.
    Delete {
        /// Index of the collection.
        collection: u64,
        /// Encoded key.
        key: &'a [u8],
    },
    /// Fails the batch unless this commit wrote the record or, with `None`, unless there is no
    /// record.
    Check {
        /// Index of the collection.
        collection: u64,
        /// Encoded key.
        key: &'a [u8],
        /// Version of the commit.
        version: Option<u64>,
    },
}
