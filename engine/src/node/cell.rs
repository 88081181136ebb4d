//! Cell payloads: the bytes after the key's suffix.
//!
//! ```text
//! leaf:   varint (length of the value << 4 | flags); varint version if flag 4 is set; varint expiry in milliseconds since 1970 if
//!         flag 2 is set; varint length and the record's index keys (see `state::index`) if flag 8 is set; then the value, or
//!         16 bytes of block reference if flag 1 is set
//!         flags: 1 the value is out of line (one chunk, or an index of chunks if it is longer than a chunk),
//!                2 the record expires, 4 the version of the commit that wrote the record is known, 8 index keys are stored
//! inner:  16 bytes pointer to the child, u56 records below it, u8 flags: 1 out-of-line values below it
//! ```

use crate::block::{BlockRef, REF_BYTES};
use crate::error::{Error, Result};

const FLAG_OUT_OF_LINE: u64 = 1;
const FLAG_EXPIRES: u64 = 2;
const FLAG_VERSION: u64 = 4;
const FLAG_KEYS: u64 = 8;
const FLAG_BITS: u32 = 4;
pub(super) const COUNT_MASK: u64 = (1 << 56) - 1;
/// Maximum length of a value, in bytes.
pub(crate) const MAX_VALUE_BYTES: usize = i32::MAX as usize;

/// A record's value as stored in a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeafCell<'a> {
    pub value_len: usize,
    pub place: ValuePlace<'a>,
    /// Version of the commit that wrote the record, 0 if unknown.
    pub version: u64,
    /// Expiry in milliseconds since 1970; 0 means never.
    pub expires: u64,
    /// The record's index keys, encoded; empty if none are stored here.
    pub index_keys: &'a [u8],
}

/// Where the value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValuePlace<'a> {
    Inline(&'a [u8]),
    OutOfLine(BlockRef),
}

impl<'a> LeafCell<'a> {
    pub(crate) fn new(value_len: usize, place: ValuePlace<'a>) -> Self {
        Self {
            value_len,
            place,
            version: 0,
            expires: 0,
            index_keys: &[],
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn inline(value: &'a [u8]) -> Self {
        Self::new(value.len(), ValuePlace::Inline(value))
    }

    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// Replaces `into` with the encoded payload.
    pub(crate) fn encode_into(&self, into: &mut Vec<u8>) {
        into.clear();
        let mut flags = 0;
        if matches!(self.place, ValuePlace::OutOfLine(_)) {
            flags |= FLAG_OUT_OF_LINE;
        }
        if self.expires != 0 {
            flags |= FLAG_EXPIRES;
        }
        if self.version != 0 {
            flags |= FLAG_VERSION;
        }
        if !self.index_keys.is_empty() {
            flags |= FLAG_KEYS;
        }
        put_varint(into, (self.value_len as u64) << FLAG_BITS | flags);
        if self.version != 0 {
            put_varint(into, self.version);
        }
        if self.expires != 0 {
            put_varint(into, self.expires);
        }
        if !self.index_keys.is_empty() {
            put_bytes(into, self.index_keys);
        }
        match self.place {
            ValuePlace::Inline(value) => into.extend_from_slice(value),
            ValuePlace::OutOfLine(reference) => into.extend_from_slice(&reference.encode()),
        }
    }

    /// Decodes a payload that [`check_leaf_payload`] accepted, ignoring the bytes after it.
    #[inline]
    pub(crate) fn decode(payload: &'a [u8]) -> Self {
        let (head, at) = Head::decode(payload).expect("leaf cells were validated when the node was read");
        let place = if head.is_out_of_line {
            let bytes = payload[at..].first_chunk().expect("validated: a reference follows");
            ValuePlace::OutOfLine(BlockRef::decode(bytes).expect("validated: the reference is not null"))
        } else {
            ValuePlace::Inline(&payload[at..at + head.value_len])
        };
        Self {
            value_len: head.value_len,
            place,
            version: head.version,
            expires: head.expires,
            index_keys: &payload[at - head.index_keys_len..at],
        }
    }

    /// Length of the value as it is stored in the leaf.
    pub(crate) fn stored_len(&self) -> usize {
        match self.place {
            ValuePlace::Inline(value) => value.len(),
            ValuePlace::OutOfLine(_) => REF_BYTES,
        }
    }
}

/// The fields before the value.
struct Head {
    value_len: usize,
    is_out_of_line: bool,
    version: u64,
    expires: u64,
    /// Length of the index keys, which end where the value begins.
    index_keys_len: usize,
}

impl Head {
    /// Decodes the head; returns it with the offset of the value.
    #[cfg_attr(not(target_family = "wasm"), inline)]
    fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (meta, mut at) = get_varint(bytes)?;
        let mut optional = |flag: u64| {
            if meta & flag == 0 {
                return Some(0);
            }
            let (value, len) = get_varint(bytes.get(at..)?)?;
            at += len;
            Some(value)
        };
        let mut head = Self {
            value_len: usize::try_from(meta >> FLAG_BITS).ok()?,
            is_out_of_line: meta & FLAG_OUT_OF_LINE != 0,
            version: optional(FLAG_VERSION)?,
            expires: optional(FLAG_EXPIRES)?,
            index_keys_len: 0,
        };
        if meta & FLAG_KEYS != 0 {
            head.index_keys_len = usize::try_from(optional(FLAG_KEYS)?).ok()?;
            at = at.checked_add(head.index_keys_len)?;
        }
        Some((head, at))
    }
}

/// The inline value at the front of `bytes` and its record's expiry; `None` if it is out of line.
#[cfg_attr(not(target_family = "wasm"), inline)]
pub(super) fn inline_value(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let (meta, at) = get_varint(bytes)?;
    let mut rest = bytes.get(at..)?;
    if meta & FLAG_VERSION != 0 {
        let (_, len) = get_varint(rest)?;
        rest = rest.get(len..)?;
    }
    let mut expires = 0;
    if meta & FLAG_EXPIRES != 0 {
        let (value, len) = get_varint(rest)?;
        expires = value;
        rest = rest.get(len..)?;
    }
    if meta & FLAG_KEYS != 0 {
        let (keys_len, len) = get_varint(rest)?;
        rest = rest.get(len.checked_add(usize::try_from(keys_len).ok()?)?..)?;
    }
    if meta & FLAG_OUT_OF_LINE != 0 {
        return None;
    }
    let len = usize::try_from(meta >> FLAG_BITS).ok()?;
    Some((rest.get(..len)?, expires))
}

/// Length of the payload of a valid cell at the front of `bytes`.
pub(crate) fn leaf_payload_len(bytes: &[u8]) -> usize {
    Head::decode(bytes).map_or(0, |(head, at)| {
        at + if head.is_out_of_line { REF_BYTES } else { head.value_len }
    })
}

/// Checks the payload at the front of untrusted `bytes`. Returns its length and whether the value
/// is out of line.
#[inline]
pub(crate) fn check_leaf_payload(bytes: &[u8]) -> Option<(usize, bool)> {
    // Fast path for most records: values of less than 1 KiB, inline, without an expiry or index keys.
    if let [low, high, rest @ ..] = bytes
        && high & 0x80 == 0
        && low & 0x80 != 0
        && u64::from(low & 15) == FLAG_VERSION
        && let Some(version_len) = rest.iter().take(4).position(|byte| byte & 0x80 == 0)
    {
        let value_len = usize::from(*low & 0x7F) >> FLAG_BITS | usize::from(*high) << (7 - FLAG_BITS);
        let end = 2 + version_len + 1 + value_len;
        return (end <= bytes.len()).then_some((end, false));
    }
    check_any_leaf_payload(bytes)
}

fn check_any_leaf_payload(bytes: &[u8]) -> Option<(usize, bool)> {
    let (head, at) = Head::decode(bytes)?;
    if head.value_len > MAX_VALUE_BYTES {
        return None;
    }
    if !head.is_out_of_line {
        let end = at.checked_add(head.value_len)?;
        return (end <= bytes.len()).then_some((end, false));
    }
    BlockRef::decode(bytes.get(at..)?.first_chunk()?)?;
    Some((at + REF_BYTES, true))
}

/// A child as described by its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    pub pointer: BlockRef,
    pub count: u64,
    pub has_overflow: bool,
}

impl Child {
    pub(crate) const BYTES: usize = REF_BYTES + 8;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        debug_assert!(self.count <= COUNT_MASK);
        let mut bytes = [0; Self::BYTES];
        bytes[..REF_BYTES].copy_from_slice(&self.pointer.encode());
        let word = self.count | u64::from(self.has_overflow) << 56;
        bytes[REF_BYTES..].copy_from_slice(&word.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let tail = bytes.get(REF_BYTES..)?;
        Some(Self {
            pointer: BlockRef::decode(bytes.first_chunk()?)?,
            count: Self::decode_count(tail),
            has_overflow: *tail.get(7)? & 1 != 0,
        })
    }

    /// Decodes a root from storage, where all zeros mean an empty tree.
    pub(crate) fn decode_root(bytes: &[u8]) -> Result<Option<Self>> {
        match Self::decode(bytes) {
            Some(child) => Ok(Some(child)),
            None if bytes.iter().all(|byte| *byte == 0) => Ok(None),
            _ => Err(Error::corrupt("the reference to a tree's root is malformed")),
        }
    }

    pub(crate) fn decode_count(word: &[u8]) -> u64 {
        word.first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes) & COUNT_MASK)
    }
}

/// Appends a number as unsigned LEB128.
pub(crate) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Appends a length and that many bytes.
pub(crate) fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

/// Decodes the number at the front of `bytes`; returns it with its encoded length.
#[cfg_attr(not(target_family = "wasm"), inline)]
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    match *bytes {
        [low, ..] if low < 0x80 => Some((u64::from(low), 1)),
        [low, high, ..] if high < 0x80 => Some((u64::from(low & 0x7F) | u64::from(high) << 7, 2)),
        _ => get_long_varint(bytes),
    }
}

fn get_long_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}
