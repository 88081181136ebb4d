//! Payload of a log record: the changes of its commits, in order.
//!
//! ```text
//! each change: u8 kind, then by kind (numbers are varints, "bytes" a varint length and the bytes)
//! 1 set         collection id, key bytes, value bytes
//! 2 set out of line: collection id, key bytes, length of the value, 16 bytes of block reference
//!               kinds 1 and 2: with 16 added to the kind, the expiry in milliseconds stands before the key; with 32 added, bytes of
//!               the index keys stand there too, after the expiry
//! 3 delete      collection id, key bytes
//! 4 clear       collection id, u8 kind of the lower bound, bytes, u8 kind of the upper bound, bytes
//!               (kinds: 0 none, 1 included, 2 excluded)
//! 5 create      collection id, name bytes
//! 6 codecs      collection id, key codec bytes, value codec bytes
//! 7 drop        collection id
//! 9 rename      collection id, name bytes
//! 10 indexes    collection id, bytes of the list of its indexes, as in the catalog
//! 8 end         the commit ends here and its version is one more than the one before
//! ```

use std::ops::Bound;

use crate::block::{BlockRef, REF_BYTES};
use crate::error::{Error, Result};
use crate::node::cell::{get_varint, put_bytes, put_varint};

/// One change, borrowed from a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    Set {
        collection: u32,
        key: &'a [u8],
        value: &'a [u8],
        /// 0 means never.
        expires: u64,
        /// Index keys to store in the record's cell.
        index_keys: &'a [u8],
    },
    SetOutOfLine {
        collection: u32,
        key: &'a [u8],
        value_len: u64,
        reference: BlockRef,
        expires: u64,
        index_keys: &'a [u8],
    },
    Delete {
        collection: u32,
        key: &'a [u8],
    },
    Clear {
        collection: u32,
        lower: Bound<&'a [u8]>,
        upper: Bound<&'a [u8]>,
    },
    Create {
        collection: u32,
        name: &'a str,
    },
    Codecs {
        collection: u32,
        key_codec: &'a str,
        value_codec: &'a str,
    },
    Drop {
        collection: u32,
    },
    Rename {
        collection: u32,
        name: &'a str,
    },
    Indexes {
        collection: u32,
        list: &'a [u8],
    },
    /// In the feed only: a record that had expired was removed.
    Expire {
        collection: u32,
        key: &'a [u8],
    },
    End,
}

const WITH_EXPIRY: u8 = 16;
const WITH_INDEX_KEYS: u8 = 32;

fn flags(expires: u64, index_keys: &[u8]) -> u8 {
    let expiry = if expires == 0 { 0 } else { WITH_EXPIRY };
    let keys = if index_keys.is_empty() { 0 } else { WITH_INDEX_KEYS };
    expiry | keys
}

fn put_optional(into: &mut Vec<u8>, expires: u64, index_keys: &[u8]) {
    if expires != 0 {
        put_varint(into, expires);
    }
    if !index_keys.is_empty() {
        put_bytes(into, index_keys);
    }
}

fn put_bound(into: &mut Vec<u8>, bound: Bound<&[u8]>) {
    let (kind, bytes): (u8, &[u8]) = match bound {
        Bound::Unbounded => (0, &[]),
        Bound::Included(key) => (1, key),
        Bound::Excluded(key) => (2, key),
    };
    into.push(kind);
    put_bytes(into, bytes);
}

impl Operation<'_> {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let mut begin = |kind: u8, collection: u32| {
            into.push(kind);
            put_varint(into, u64::from(collection));
        };
        match *self {
            Operation::Set {
                collection,
                key,
                value,
                expires,
                index_keys,
            } => {
                begin(1 | flags(expires, index_keys), collection);
                put_optional(into, expires, index_keys);
                put_bytes(into, key);
                put_bytes(into, value);
            }
            Operation::SetOutOfLine {
                collection,
                key,
                value_len,
                reference,
                expires,
                index_keys,
            } => {
                begin(2 | flags(expires, index_keys), collection);
                put_optional(into, expires, index_keys);
                put_bytes(into, key);
                put_varint(into, value_len);
                into.extend_from_slice(&reference.encode());
            }
            Operation::Delete { collection, key } => {
                begin(3, collection);
                put_bytes(into, key);
            }
            Operation::Expire { collection, key } => {
                begin(11, collection);
                put_bytes(into, key);
            }
            Operation::Clear {
                collection,
                lower,
                upper,
            } => {
                begin(4, collection);
                put_bound(into, lower);
                put_bound(into, upper);
            }
            Operation::Create { collection, name } => {
                begin(5, collection);
                put_bytes(into, name.as_bytes());
            }
            Operation::Codecs {
                collection,
                key_codec,
                value_codec,
            } => {
                begin(6, collection);
                put_bytes(into, key_codec.as_bytes());
                put_bytes(into, value_codec.as_bytes());
            }
            Operation::Drop { collection } => begin(7, collection),
            Operation::Rename { collection, name } => {
                begin(9, collection);
                put_bytes(into, name.as_bytes());
            }
            Operation::Indexes { collection, list } => {
                begin(10, collection);
                put_bytes(into, list);
            }
            Operation::End => into.push(8),
        }
    }
}

/// Iterates over the changes of an untrusted payload.
pub(crate) struct Operations<'a> {
    rest: &'a [u8],
}

impl<'a> Operations<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, len) = get_varint(self.rest)?;
        self.rest = &self.rest[len..];
        Some(value)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn bound(&mut self) -> Option<Bound<&'a [u8]>> {
        let kind = self.take(1)?[0];
        let bytes = self.bytes()?;
        match kind {
            0 if bytes.is_empty() => Some(Bound::Unbounded),
            1 => Some(Bound::Included(bytes)),
            2 => Some(Bound::Excluded(bytes)),
            _ => None,
        }
    }

    fn parse(&mut self) -> Option<Operation<'a>> {
        let kind = self.take(1)?[0];
        if kind == 8 {
            return Some(Operation::End);
        }
        let collection = u32::try_from(self.varint()?).ok()?;
        let expires = if kind & WITH_EXPIRY == 0 { 0 } else { self.varint()? };
        let index_keys = if kind & WITH_INDEX_KEYS == 0 {
            &[]
        } else {
            self.bytes()?
        };
        Some(match kind {
            1 | 17 | 33 | 49 => Operation::Set {
                collection,
                key: self.bytes()?,
                value: self.bytes()?,
                expires,
                index_keys,
            },
            2 | 18 | 34 | 50 => Operation::SetOutOfLine {
                collection,
                key: self.bytes()?,
                value_len: self.varint()?,
                reference: BlockRef::decode(self.take(REF_BYTES)?.first_chunk()?)?,
                expires,
                index_keys,
            },
            3 => Operation::Delete {
                collection,
                key: self.bytes()?,
            },
            4 => Operation::Clear {
                collection,
                lower: self.bound()?,
                upper: self.bound()?,
            },
            5 => Operation::Create {
                collection,
                name: self.text()?,
            },
            6 => Operation::Codecs {
                collection,
                key_codec: self.text()?,
                value_codec: self.text()?,
            },
            7 => Operation::Drop { collection },
            9 => Operation::Rename {
                collection,
                name: self.text()?,
            },
            10 => Operation::Indexes {
                collection,
                list: self.bytes()?,
            },
            11 => Operation::Expire {
                collection,
                key: self.bytes()?,
            },
            _ => return None,
        })
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let operation = self.parse();
        if operation.is_none() {
            self.rest = &[];
        }
        Some(operation.ok_or_else(|| Error::corrupt("a log record with a valid checksum holds an unknown change")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> Vec<Operation<'static>> {
        let reference = BlockRef {
            unit: 9,
            units: 2,
            checksum: 3,
            raw_len: 4,
        };
        vec![
            Operation::Create {
                collection: 300,
                name: "ü",
            },
            Operation::Codecs {
                collection: 300,
                key_codec: "any",
                value_codec: "",
            },
            Operation::Set {
                collection: 300,
                key: b"",
                value: b"value",
                expires: 0,
                index_keys: b"",
            },
            Operation::Set {
                collection: 300,
                key: b"k",
                value: b"value",
                expires: 7,
                index_keys: b"keys",
            },
            Operation::Set {
                collection: 300,
                key: b"",
                value: b"",
                expires: 1 << 41,
                index_keys: b"",
            },
            Operation::Rename {
                collection: 300,
                name: "other",
            },
            Operation::Indexes {
                collection: 300,
                list: b"list",
            },
            Operation::SetOutOfLine {
                collection: 300,
                key: b"k",
                value_len: 1 << 30,
                reference,
                expires: 1,
                index_keys: b"k",
            },
            Operation::End,
            Operation::Delete {
                collection: 300,
                key: b"k",
            },
            Operation::Clear {
                collection: 300,
                lower: Bound::Excluded(b"a"),
                upper: Bound::Unbounded,
            },
            Operation::Expire {
                collection: 7,
                key: b"gone",
            },
            Operation::Drop { collection: 300 },
            Operation::End,
        ]
    }

    #[test]
    fn operations_round_trip_and_truncation_is_found() {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for operation in samples() {
            operation.encode(&mut bytes);
            ends.push(bytes.len());
        }
        let decoded: Result<Vec<_>> = Operations::new(&bytes).collect();
        assert_eq!(decoded.unwrap(), samples());
        for len in 0..bytes.len() {
            let decoded: Result<Vec<_>> = Operations::new(&bytes[..len]).collect();
            assert_eq!(decoded.is_ok(), ends.contains(&len));
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Operations::new(&bytes).count() <= bytes.len() + 1);
        }
    }
}
