//! Encodes replies.

use std::ops::Bound;

use mangrove_engine::{Error, Result};

use super::{AGAIN, FAILED, HAS_KEYS, OK, RETRYABLE};

/// Placeholder in an error's message for the key, which the client prints.
const KEY_PLACE: &str = "\0";
const COUNT_BYTES: usize = 5;
/// Largest number of items that fits the room left for it.
pub const MAX_CHUNK_ITEMS: u64 = (1 << (7 * COUNT_BYTES)) - 1;

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
                None => (error.to_string(), None, None, &[]),
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
            _ => (error.to_string(), None, None, &[]),
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
