//! The binary protocol between the host language and the engine: requests in, replies out, no I/O.
//!
//! Little endian. `uv` is an unsigned LEB128 of at most 64 bits, `bytes` a `uv` length and that
//! many bytes, `str` `bytes` of UTF-8. A message is a sequence of requests, its answer their
//! replies in the same order. Requests cross a language boundary, so nothing here trusts a length.

use std::ops::Bound;

use mangrove_engine::{Durability, Error, IndexDefinition, KeyRange, Result, SliceRecord};

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
        LACKS_REST "lacksRest" = 4,
    }
}

flags! {
    /// Indexes into the engine's frame of 32-bit words: each part has an address and a length in
    /// bytes.
    FRAME_PARTS {
        FRAME_REQUEST "request" = 0,
        FRAME_REPLY "reply" = 2,
        FRAME_STATE "state" = 4,
        FRAME_WAKES "wakes" = 6,
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

const DEFAULT_CHUNK_ITEMS: u64 = 256;
const DEFAULT_CHUNK_BYTES: u64 = 64 << 10;

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

/// Decodes a message. Nothing after a malformed request can be decoded, so an error discards the
/// rest.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    is_malformed: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self::from(message, 0)
    }

    /// Reads from byte `at` of `message`.
    pub fn from(message: &'a [u8], at: usize) -> Self {
        Self {
            rest: message.get(at..).unwrap_or_default(),
            is_malformed: false,
        }
    }

    /// Returns the number of unread bytes.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next byte without consuming it.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Discards the rest of the message and returns the error.
    #[cold]
    pub fn malformed(&mut self) -> Error {
        self.rest = &[];
        self.is_malformed = true;
        Error::InvalidArgument {
            what: "malformed request".into(),
        }
    }

    /// Returns what was read from the message, unless that failed.
    pub(crate) fn whole<T>(&mut self, read: T) -> Result<T> {
        if self.is_malformed {
            Err(self.malformed())
        } else {
            Ok(read)
        }
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8> {
        let Some((&first, rest)) = self.rest.split_first() else {
            return Err(self.malformed());
        };
        self.rest = rest;
        Ok(first)
    }

    /// Reads an unsigned number.
    pub fn uv(&mut self) -> Result<u64> {
        let mut value = 0;
        for ((index, byte), shift) in self.rest.iter().enumerate().zip((0..64).step_by(7)) {
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if *byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(self.malformed())
    }

    /// Reads a byte string.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.count()?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a string.
    pub fn str(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.malformed())
    }

    /// Reads the number of items that follow, each of at least one byte.
    pub fn count(&mut self) -> Result<usize> {
        match usize::try_from(self.uv()?) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(self.malformed()),
        }
    }

    /// Reads a length or position.
    pub fn size(&mut self) -> Result<usize> {
        usize::try_from(self.uv()?).map_err(|_| self.malformed())
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
    }

    /// Reads a bound, as [`Writer::bound`] writes it.
    pub fn owned_bound(&mut self) -> Result<Bound<Vec<u8>>> {
        Ok(match self.u8()? {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.bytes()?.to_vec()),
            2 => Bound::Excluded(self.bytes()?.to_vec()),
            _ => return Err(self.malformed()),
        })
    }

    /// Reads a flag, 0 or 1.
    pub fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// Reads a view: 0 for the newest state, otherwise an id.
    pub fn view(&mut self) -> Result<View> {
        Ok(match self.uv()? {
            0 => View::Current,
            id => View::Opened(id),
        })
    }

    /// Reads a durability.
    pub fn durability(&mut self) -> Result<Durability> {
        match self.u8()? {
            0 => Ok(Durability::Strict),
            1 => Ok(Durability::Relaxed),
            2 => Ok(Durability::None),
            _ => Err(self.malformed()),
        }
    }

    /// Reads a range of keys.
    pub fn range(&mut self) -> Result<KeyRange<'a>> {
        let flags = self.u8()?;
        if flags & !(HAS_LOWER | LOWER_EXCLUSIVE | HAS_UPPER | UPPER_EXCLUSIVE) != 0 {
            return Err(self.malformed());
        }
        let lower = self.bound(flags & HAS_LOWER != 0, flags & LOWER_EXCLUSIVE != 0)?;
        let upper = self.bound(flags & HAS_UPPER != 0, flags & UPPER_EXCLUSIVE != 0)?;
        Ok(KeyRange { lower, upper })
    }

    fn bound(&mut self, present: bool, exclusive: bool) -> Result<Bound<&'a [u8]>> {
        Ok(match (present, exclusive) {
            (false, _) => Bound::Unbounded,
            (true, false) => Bound::Included(self.bytes()?),
            (true, true) => Bound::Excluded(self.bytes()?),
        })
    }

    /// Reads the limits of one reply of a scan; 0 selects the default.
    pub fn chunk(&mut self) -> Result<ChunkLimit> {
        let items = self.uv()?;
        let bytes = self.uv()?;
        Ok(ChunkLimit {
            items: if items == 0 { DEFAULT_CHUNK_ITEMS } else { items },
            bytes: if bytes == 0 { DEFAULT_CHUNK_BYTES } else { bytes },
        })
    }

    /// Reads a number of which 0 means none.
    pub fn limit(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.uv()?).filter(|&limit| limit != 0))
    }

    /// Reads the options of a scan.
    pub fn scan_options(&mut self) -> Result<ScanOptions> {
        Ok(ScanOptions {
            flags: ScanFlags(self.u8()?),
            offset: self.uv()?,
            limit: self.limit()?,
            chunk: self.chunk()?,
        })
    }

    /// Reads byte strings, preceded by their number, and checks that all are present. Returns their
    /// number and a reader at the first.
    pub fn list(&mut self) -> Result<(usize, Self)> {
        let count = self.count()?;
        let items = *self;
        for _ in 0..count {
            self.bytes()?;
        }
        Ok((count, items))
    }

    /// Reads items, preceded by their number, and checks that all are present. Returns their number
    /// and a reader at the first.
    pub fn list_of(&mut self, read: fn(&mut Self) -> Result<()>) -> Result<(usize, Self)> {
        let count = self.count()?;
        let items = *self;
        for _ in 0..count {
            read(self)?;
        }
        Ok((count, items))
    }

    /// Reads the definition of an index.
    pub fn definition(&mut self) -> Result<IndexDefinition> {
        Ok(IndexDefinition {
            name: self.str()?.to_owned(),
            version: u32::try_from(self.uv()?).map_err(|_| self.malformed())?,
            unique: self.flag()?,
        })
    }

    /// Reads a record of a slice of an index.
    pub fn slice_record(&mut self) -> Result<SliceRecord> {
        Ok(SliceRecord {
            key: self.bytes()?.to_vec(),
            version: self.uv()?,
            index_keys: self.index_keys()?,
        })
    }

    /// Reads a record's keys in one index.
    pub fn index_keys(&mut self) -> Result<Vec<Vec<u8>>> {
        (0..self.count()?).map(|_| Ok(self.bytes()?.to_vec())).collect()
    }

    /// Reads the changes of a batch, preceded by their number, and checks that all are present.
    /// Returns their number and a reader at the first.
    pub fn batch(&mut self) -> Result<(usize, Self)> {
        let count = self.count()?;
        let items = *self;
        for _ in 0..count {
            self.batch_op()?;
        }
        Ok((count, items))
    }

    /// Reads one change of a batch.
    pub fn batch_op(&mut self) -> Result<BatchOp<'a>> {
        let kind = self.u8()?;
        let collection = self.uv()?;
        let key = self.bytes()?;
        Ok(match kind {
            BATCH_SET | BATCH_SET_EXPIRING => BatchOp::Set {
                collection,
                key,
                value: self.bytes()?,
                expires_at: if kind == BATCH_SET { None } else { Some(self.uv()?) },
            },
            BATCH_SET_INDEXED => BatchOp::SetIndexed {
                collection,
                key,
                value: self.bytes()?,
                expires_at: self.limit()?,
                index_keys: self.bytes()?,
            },
            BATCH_DELETE => BatchOp::Delete { collection, key },
            BATCH_CHECK => BatchOp::Check {
                collection,
                key,
                version: self.uv()?.checked_sub(1),
            },
            _ => return Err(self.malformed()),
        })
    }
}

/// Appends replies to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

/// The start of a reply that can still become an error.
#[derive(Debug)]
pub struct ReplyStart(usize);

impl Writer {
    /// Returns what has been written.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns what has been written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the number of bytes written.
    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Clears the buffer and keeps up to `keep_bytes` of its memory.
    pub fn reset(&mut self, keep_bytes: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep_bytes);
    }

    /// Discards everything from `start` on.
    pub fn truncate(&mut self, start: usize) {
        self.bytes.truncate(start);
    }

    /// Begins a successful reply.
    pub fn begin(&mut self) -> ReplyStart {
        let start = ReplyStart(self.bytes.len());
        self.bytes.push(OK);
        start
    }

    /// Replaces the reply that began at `start` with an error.
    pub fn fail(&mut self, start: &ReplyStart, error: &Error) {
        self.bytes.truncate(start.0);
        self.error(error);
    }

    /// Writes an error as a whole reply. If it concerns keys, the collection and they follow, with
    /// the index key first if there is one, and each is [`KEY_PLACE`] in the message.
    pub fn error(&mut self, error: &Error) {
        let (message, collection, index_key, keys): (_, _, _, &[&[u8]]) = match error {
            Error::Conflict(conflict) => match &conflict.key {
                Some(key) => (
                    conflict.message(KEY_PLACE),
                    conflict.collection.as_deref(),
                    None,
                    &[key],
                ),
                None => (error.message(), None, None, &[]),
            },
            Error::NotUnique(records) => {
                let [stored, other] = &records.keys;
                let message = records.message(KEY_PLACE, [KEY_PLACE; 2]);
                (
                    message,
                    Some(&*records.collection),
                    Some(&*records.index_key),
                    &[stored, other],
                )
            }
            _ => (error.message(), None, None, &[]),
        };
        self.bytes.push(FAILED);
        self.bytes(error.code().as_bytes());
        self.bytes(message.as_bytes());
        self.bytes
            .push(if error.is_retryable() { RETRYABLE } else { 0 } | if keys.is_empty() { 0 } else { HAS_KEYS });
        if keys.is_empty() {
            return;
        }
        self.bytes(collection.unwrap_or_default().as_bytes());
        self.flag(index_key.is_some());
        if let Some(key) = index_key {
            self.bytes(key);
        }
        self.uv(keys.len() as u64);
        for key in keys {
            self.bytes(key);
        }
    }

    /// Writes a failure of the host, which may not last, as a whole reply.
    pub fn host_failure(&mut self, what: &str, source: &str) {
        self.bytes.push(FAILED);
        self.bytes(b"KV_IO");
        self.bytes([what, ": ", source].concat().as_bytes());
        self.bytes.push(RETRYABLE);
    }

    /// Writes the refusal of a request that cannot succeed later, as a whole reply.
    pub(crate) fn refusal(&mut self, code: &str, message: &str) {
        self.bytes.push(FAILED);
        self.bytes(code.as_bytes());
        self.bytes(message.as_bytes());
        self.bytes.push(0);
    }

    /// Writes a whole reply that asks for the request again.
    pub fn again(&mut self) {
        self.bytes.push(AGAIN);
    }

    /// Writes a flag, 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    /// Writes an unsigned number.
    pub fn uv(&mut self, value: u64) {
        self.bytes.extend_from_slice(Uv::of(value).as_slice());
    }

    /// Writes a byte string.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.uv(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes a byte string that `fill` appends. After an error the written bytes are undefined.
    ///
    /// One byte is left for the length, which is enough for short values; longer ones are moved up.
    pub fn bytes_with<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<T>) -> Result<T> {
        let start = self.bytes.len();
        self.bytes.push(0);
        let result = fill(&mut self.bytes)?;
        let end = self.bytes.len();
        let len = end - start - 1;
        let prefix = Uv::of(len as u64);
        let extra = prefix.as_slice().len() - 1;
        if extra > 0 {
            self.bytes.resize(end + extra, 0);
            self.bytes.copy_within(start + 1..end, start + 1 + extra);
        }
        self.bytes[start..=start + extra].copy_from_slice(prefix.as_slice());
        Ok(result)
    }

    /// Writes an optional byte string: `fill` appends it and returns whether there is one.
    pub fn optional_with(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> Result<bool>) -> Result<()> {
        let start = self.bytes.len();
        self.bytes.push(1);
        if !self.bytes_with(fill)? {
            self.bytes.truncate(start);
            self.bytes.push(0);
        }
        Ok(())
    }

    /// Writes a bound: 0 for none, 1 for inclusive, 2 for exclusive; the latter two with a key.
    pub fn bound(&mut self, bound: &Bound<Vec<u8>>) {
        let (kind, key) = match bound {
            Bound::Unbounded => (0, None),
            Bound::Included(key) => (1, Some(key)),
            Bound::Excluded(key) => (2, Some(key)),
        };
        self.bytes.push(kind);
        if let Some(key) = key {
            self.bytes(key);
        }
    }

    /// Overwrites a flag written earlier.
    pub fn patch_flag(&mut self, at: usize, value: bool) {
        self.patch_byte(at, u8::from(value));
    }

    /// Overwrites a byte written earlier.
    pub fn patch_byte(&mut self, at: usize, value: u8) {
        self.bytes[at] = value;
    }

    /// Leaves room for a number that is known later; returns its position.
    pub fn reserve_count(&mut self) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; COUNT_BYTES]);
        at
    }

    /// Writes a number into the room left for it, in exactly as many bytes.
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    pub fn patch_count(&mut self, at: usize, mut count: u64) {
        debug_assert!(count < 1 << (7 * COUNT_BYTES));
        for byte in &mut self.bytes[at..at + COUNT_BYTES] {
            *byte = count as u8 | 0x80;
            count >>= 7;
        }
        self.bytes[at + COUNT_BYTES - 1] &= 0x7f;
    }
}

/// Placeholder in an error's message for the key, which the client prints.
const KEY_PLACE: &str = "\0";
const COUNT_BYTES: usize = 5;
/// Largest number of items that fits the room left for it.
pub const MAX_CHUNK_ITEMS: u64 = (1 << (7 * COUNT_BYTES)) - 1;

struct Uv {
    bytes: [u8; 10],
    len: usize,
}

impl Uv {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
    fn of(mut value: u64) -> Self {
        let mut bytes = [0; 10];
        let mut len = 0;
        while value >= 0x80 {
            bytes[len] = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value as u8;
        Self { bytes, len: len + 1 }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
