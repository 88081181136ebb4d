//! Encoding of the changes of one commit.
//!
//! Each change is a u8 kind followed by its fields. A name, key or value is a length and that many
//! bytes; an expiry is a number; a bound is u8 0 none, 1 inclusive, 2 exclusive, followed for the
//! latter two by a key.
//!
//! ```text
//! 1 set      collection, key, value
//! 2 set      collection, key, value, expiry
//! 3 delete   collection, key
//! 4 clear    collection, lower bound, upper bound
//! 5 create   collection
//! 6 codecs   collection, key codec id, value codec id
//! 7 drop     collection
//! 8 rename   name before, name from now on
//! ```

use std::ops::Bound;

use crate::node::cell::{get_varint, put_bytes, put_varint};
use crate::state::Change;

fn put_all(into: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    into.push(kind);
    for part in parts {
        put_bytes(into, part);
    }
}

fn put_bound(into: &mut Vec<u8>, bound: &Bound<Vec<u8>>) {
    match bound {
        Bound::Unbounded => into.push(0),
        Bound::Included(key) => put_all(into, 1, &[key]),
        Bound::Excluded(key) => put_all(into, 2, &[key]),
    }
}

/// Appends a change.
pub(super) fn encode(change: &Change, into: &mut Vec<u8>) {
    match change {
        Change::Set {
            collection,
            key,
            value,
            expires_at,
        } => {
            let kind = if expires_at.is_some() { 2 } else { 1 };
            put_all(into, kind, &[collection.as_bytes(), key, value]);
            if let Some(expires_at) = expires_at {
                put_varint(into, *expires_at);
            }
        }
        Change::Delete { collection, key, .. } => put_all(into, 3, &[collection.as_bytes(), key]),
        Change::Clear {
            collection,
            lower,
            upper,
        } => {
            put_all(into, 4, &[collection.as_bytes()]);
            put_bound(into, lower);
            put_bound(into, upper);
        }
        Change::Create { collection } => put_all(into, 5, &[collection.as_bytes()]),
        Change::Codecs {
            collection,
            key_codec,
            value_codec,
        } => put_all(
            into,
            6,
            &[collection.as_bytes(), key_codec.as_bytes(), value_codec.as_bytes()],
        ),
        Change::Drop { collection } => put_all(into, 7, &[collection.as_bytes()]),
        Change::Rename { from, to } => put_all(into, 8, &[from.as_bytes(), to.as_bytes()]),
    }
}

/// Reads the changes of a commit.
pub(super) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u64> {
        let (value, taken) = get_varint(self.rest)?;
        self.rest = &self.rest[taken..];
        Some(value)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes.to_vec())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    fn bound(&mut self) -> Option<Bound<Vec<u8>>> {
        Some(match self.byte()? {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.bytes()?),
            2 => Bound::Excluded(self.bytes()?),
            _ => return None,
        })
    }

    fn change(&mut self) -> Option<Change> {
        let kind = self.byte()?;
        let collection = self.text()?;
        Some(match kind {
            1 | 2 => Change::Set {
                collection,
                key: self.bytes()?,
                value: self.bytes()?,
                expires_at: if kind == 2 { Some(self.number()?) } else { None },
            },
            3 => Change::Delete {
                collection,
                key: self.bytes()?,
                expired: false,
            },
            4 => Change::Clear {
                collection,
                lower: self.bound()?,
                upper: self.bound()?,
            },
            5 => Change::Create { collection },
            6 => Change::Codecs {
                collection,
                key_codec: self.text()?,
                value_codec: self.text()?,
            },
            7 => Change::Drop { collection },
            8 => Change::Rename {
                from: collection,
                to: self.text()?,
            },
            _ => return None,
        })
    }

    /// Returns the next change, `None` after the last one; `Err` if the bytes are malformed.
    pub(super) fn next(&mut self) -> Result<Option<Change>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.change().map(Some).ok_or(Malformed)
    }
}

/// Bytes that do not encode a change.
#[derive(Debug)]
pub(super) struct Malformed;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> Vec<Change> {
        let c = || "c".to_owned();
        let set = |expires_at| Change::Set {
            collection: c(),
            key: b"k".to_vec(),
            value: b"vv".to_vec(),
            expires_at,
        };
        let clear = |lower, upper| Change::Clear {
            collection: c(),
            lower,
            upper,
        };
        vec![
            set(None),
            set(Some(300)),
            Change::Delete {
                collection: c(),
                key: Vec::new(),
                expired: false,
            },
            clear(Bound::Included(b"a".to_vec()), Bound::Excluded(b"b".to_vec())),
            clear(Bound::Unbounded, Bound::Unbounded),
            Change::Create { collection: c() },
            Change::Codecs {
                collection: c(),
                key_codec: "any".to_owned(),
                value_codec: String::new(),
            },
            Change::Drop { collection: c() },
            Change::Rename {
                from: c(),
                to: "d".to_owned(),
            },
        ]
    }

    fn decode(bytes: &[u8]) -> Result<Vec<Change>, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let mut changes = Vec::new();
        while let Some(change) = decoder.next()? {
            changes.push(change);
        }
        Ok(changes)
    }

    #[test]
    fn changes_have_golden_bytes() {
        let golden: [&[u8]; 9] = [
            b"\x01\x01c\x01k\x02vv",
            b"\x02\x01c\x01k\x02vv\xAC\x02",
            b"\x03\x01c\0",
            b"\x04\x01c\x01\x01a\x02\x01b",
            b"\x04\x01c\0\0",
            b"\x05\x01c",
            b"\x06\x01c\x03any\0",
            b"\x07\x01c",
            b"\x08\x01c\x01d",
        ];
        for (change, bytes) in samples().iter().zip(golden) {
            let mut encoded = Vec::new();
            encode(change, &mut encoded);
            assert_eq!(encoded, bytes);
            for len in 1..bytes.len() {
                assert!(decode(&bytes[..len]).is_err(), "{change:?} {len}");
            }
        }
        assert_eq!(decode(&golden.concat()).unwrap(), samples());
        assert!(decode(b"\x09\x01c").is_err() && decode(b"\x05\x01\xFF").is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
