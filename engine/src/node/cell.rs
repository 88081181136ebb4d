//! Payloads of cells: what follows the key's suffix.
//!
//! ```text
//! leaf:   varint (length of the value << 3 | flags), then the value, or 16 bytes of block reference if flag 1 is set
//!         flags: 1 the value is out of line (one chunk, or an index of chunks if it is longer than a chunk);
//!                2 (expiry) and 4 (record version) are reserved
//! inner:  16 bytes pointer to the child, u56 records below it, u8 flags: 1 out-of-line values below it
//! ```

use crate::block::{BlockRef, Pointer, REF_BYTES};
use crate::error::{Error, Result};

const FLAG_OUT_OF_LINE: u64 = 1;
const FLAGS_RESERVED: u64 = 6;
const FLAG_BITS: u32 = 3;
pub(super) const COUNT_MASK: u64 = (1 << 56) - 1;
/// Longest value the engine takes, in bytes.
pub(crate) const MAX_VALUE_BYTES: usize = i32::MAX as usize;

/// A record's value as it stands in a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeafCell<'a> {
    pub value_len: usize,
    pub place: ValuePlace<'a>,
}

/// Where the value's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValuePlace<'a> {
    Inline(&'a [u8]),
    OutOfLine(BlockRef),
}

impl<'a> LeafCell<'a> {
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn inline(value: &'a [u8]) -> Self {
        Self {
            value_len: value.len(),
            place: ValuePlace::Inline(value),
        }
    }

    /// Replaces `into` with the payload.
    pub(crate) fn encode_into(&self, into: &mut Vec<u8>) {
        into.clear();
        let meta = (self.value_len as u64) << FLAG_BITS;
        match self.place {
            ValuePlace::Inline(value) => {
                put_varint(into, meta);
                into.extend_from_slice(value);
            }
            ValuePlace::OutOfLine(reference) => {
                put_varint(into, meta | FLAG_OUT_OF_LINE);
                into.extend_from_slice(&reference.encode());
            }
        }
    }

    /// Decodes a payload that [`leaf_payload_is_valid`] accepted.
    pub(crate) fn decode(payload: &'a [u8]) -> Self {
        let (meta, at) = get_varint(payload).expect("leaf cells were validated when the node was read");
        let value_len = (meta >> FLAG_BITS) as usize;
        let place = if meta & FLAG_OUT_OF_LINE == 0 {
            ValuePlace::Inline(&payload[at..at + value_len])
        } else {
            let bytes = payload[at..].first_chunk().expect("validated: a reference follows");
            ValuePlace::OutOfLine(BlockRef::decode(bytes).expect("validated: the reference is not null"))
        };
        Self { value_len, place }
    }
}

/// Length of the payload at the front of `bytes`, for a valid cell.
pub(crate) fn leaf_payload_len(bytes: &[u8]) -> usize {
    let (meta, at) = get_varint(bytes).unwrap_or((0, 0));
    at + if meta & FLAG_OUT_OF_LINE == 0 {
        (meta >> FLAG_BITS) as usize
    } else {
        REF_BYTES
    }
}

/// Checks the payload at the front of untrusted `bytes`; returns its length and whether the value is out of line.
pub(crate) fn check_leaf_payload(bytes: &[u8]) -> Option<(usize, bool)> {
    let (meta, at) = get_varint(bytes)?;
    let value_len = usize::try_from(meta >> FLAG_BITS).ok()?;
    if meta & FLAGS_RESERVED != 0 || value_len > MAX_VALUE_BYTES {
        return None;
    }
    if meta & FLAG_OUT_OF_LINE == 0 {
        let end = at.checked_add(value_len)?;
        return (end <= bytes.len()).then_some((end, false));
    }
    BlockRef::decode(bytes.get(at..)?.first_chunk()?)?;
    Some((at + REF_BYTES, true))
}

/// A child as its parent sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    pub pointer: Pointer,
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
            pointer: Pointer::decode(bytes.first_chunk()?)?,
            count: Self::decode_count(tail),
            has_overflow: *tail.get(7)? & 1 != 0,
        })
    }

    /// A root from storage, where all zeros mean an empty tree and a pointer to a page in memory is damage.
    pub(crate) fn decode_root(bytes: &[u8]) -> Result<Option<Self>> {
        match Self::decode(bytes) {
            Some(child) if matches!(child.pointer, Pointer::Disk(_)) => Ok(Some(child)),
            None if bytes.iter().all(|byte| *byte == 0) => Ok(None),
            _ => Err(Error::corrupt("the reference to a tree's root is malformed")),
        }
    }

    pub(crate) fn decode_count(word: &[u8]) -> u64 {
        word.first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes) & COUNT_MASK)
    }
}

/// Appends an unsigned LEB128 number.
pub(crate) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Number at the front of `bytes` and its length.
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}
