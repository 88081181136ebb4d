//! Orders of keys other than that of their bytes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::tree::KeyRange;

/// Longest name of an order in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 32;
/// Name of the order of the bytes themselves.
const BYTEWISE: &str = "bytewise";

/// An order of keys, as a bijection between keys and the byte strings that are stored for them: a key is before another if its stored form
/// is, byte by byte.
///
/// A database keeps the name of its order, and opens under no other. Whatever stands behind the name must never change: give another name
/// to another order. Ranges, positions and cursors follow the order; prefixes of keys are ranges only in the order of the bytes. The limit of
/// a key's length is one of its stored form.
///
/// An implementation that is wrong, as one that gives two keys one stored form, finds wrong records, but damages nothing.
///
/// ```
/// use std::sync::Arc;
/// use mangrove_engine::{Database, Durability, KeyOrder, Options, storage::MemoryStorage};
///
/// /// Shorter keys first.
/// struct ByLength;
///
/// impl KeyOrder for ByLength {
///     fn name(&self) -> &str {
///         "by-length"
///     }
///     fn to_stored(&self, key: &[u8], into: &mut Vec<u8>) {
///         into.extend_from_slice(&(key.len() as u32).to_be_bytes());
///         into.extend_from_slice(key);
///     }
///     fn to_key(&self, stored: &[u8], into: &mut Vec<u8>) {
///         into.extend_from_slice(stored.get(4..).unwrap_or_default());
///     }
/// }
///
/// let options = Options { key_order: Some(Arc::new(ByLength)), ..Options::default() };
/// let database = Database::open(Arc::new(MemoryStorage::new()), options)?;
/// let mut transaction = database.begin()?;
/// transaction.set("words", b"mangrove", b"")?;
/// transaction.set("words", b"tree", b"")?;
/// transaction.commit(Durability::Strict)?;
/// let words = database.snapshot().collection("words").expect("it was just written");
/// assert_eq!(words.first()?, Some((b"tree".to_vec(), Vec::new())));
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub trait KeyOrder: Send + Sync {
    /// Its name: 1 to 32 bytes without zeros, and not `bytewise`.
    fn name(&self) -> &str;

    /// Appends the stored form of a key.
    fn to_stored(&self, key: &[u8], into: &mut Vec<u8>);

    /// Appends the key that has this stored form. A file may be damaged or hostile: it must not panic, whatever `stored` is.
    fn to_key(&self, stored: &[u8], into: &mut Vec<u8>);
}

impl fmt::Debug for dyn KeyOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyOrder").field(&self.name()).finish()
    }
}

/// The reverse of the order of the bytes: `"b"`, `"ab"`, `"a"`. A key takes one byte more, and one for each of its bytes 0 and 1.
///
/// Reading backwards costs as little as reading forwards, so this is for programs that cannot say which way they read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reverse;

/// Ends a stored key: after everything by which it may go on.
const END: u8 = 0xFF;
/// Stands before the complement of 0 and 1, which would be the end and this.
const ESCAPE: u8 = 0xFE;

impl KeyOrder for Reverse {
    fn name(&self) -> &'static str {
        "reverse"
    }

    fn to_stored(&self, key: &[u8], into: &mut Vec<u8>) {
        into.reserve(key.len() + 1);
        for byte in key {
            match byte {
                0 | 1 => into.extend_from_slice(&[ESCAPE, 1 - byte]),
                _ => into.push(!byte),
            }
        }
        into.push(END);
    }

    fn to_key(&self, stored: &[u8], into: &mut Vec<u8>) {
        let mut bytes = stored.iter();
        while let Some(byte) = bytes.next() {
            match *byte {
                END => break,
                ESCAPE => into.push(u8::from(bytes.next() == Some(&0))),
                byte => into.push(!byte),
            }
        }
    }
}

/// The order of an open database; without one, keys are stored as they are.
#[derive(Clone)]
pub(crate) struct Order(Option<Arc<dyn KeyOrder>>);

/// A range of stored keys.
pub(crate) struct StoredRange<'k> {
    lower: Bound<Cow<'k, [u8]>>,
    upper: Bound<Cow<'k, [u8]>>,
}

impl StoredRange<'_> {
    pub(crate) fn borrow(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_ref().map(|key| &**key),
            upper: self.upper.as_ref().map(|key| &**key),
        }
    }
}

impl Order {
    pub(crate) fn new(order: Option<&Arc<dyn KeyOrder>>) -> Result<Self> {
        if let Some(order) = order {
            let name = order.name();
            if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') || name == BYTEWISE {
                return Err(Error::InvalidArgument {
                    what: format!(
                        "the name of a key order has 1 to {MAX_NAME_BYTES} bytes, none of them 0, and is not \"{BYTEWISE}\""
                    ),
                });
            }
        }
        Ok(Self(order.cloned()))
    }

    /// The keys as they are stored.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// The module for browsers gives no order to ask for, so there it costs nothing.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        cfg!(target_family = "wasm") || self.0.is_none()
    }

    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or(BYTEWISE, |order| order.name())
    }

    pub(crate) fn stored<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        let Some(order) = self.0.as_ref().filter(|_| !self.is_none()) else {
            return Cow::Borrowed(key);
        };
        let mut stored = Vec::new();
        order.to_stored(key, &mut stored);
        Cow::Owned(stored)
    }

    pub(crate) fn stored_range<'k>(&self, range: &KeyRange<'k>) -> StoredRange<'k> {
        StoredRange {
            lower: range.lower.map(|key| self.stored(key)),
            upper: range.upper.map(|key| self.stored(key)),
        }
    }

    /// The key of a stored one.
    pub(crate) fn key(&self, stored: Vec<u8>) -> Vec<u8> {
        if self.is_none() {
            return stored;
        }
        let mut key = Vec::new();
        self.key_into(&stored, &mut key);
        key
    }

    /// Replaces `into` by the key of a stored one.
    pub(crate) fn key_into(&self, stored: &[u8], into: &mut Vec<u8>) {
        into.clear();
        match &self.0 {
            Some(order) => order.to_key(stored, into),
            None => into.extend_from_slice(stored),
        }
    }
}

/// A name as the superblock has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OrderName([u8; MAX_NAME_BYTES]);

impl OrderName {
    /// A name that was checked.
    pub(crate) fn new(name: &str) -> Self {
        let mut bytes = [0; MAX_NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Self(bytes)
    }

    pub(crate) fn decode(bytes: [u8; MAX_NAME_BYTES]) -> Option<Self> {
        let name = Self(bytes);
        let text = name.as_str();
        (!text.is_empty() && Self::new(text) == name).then_some(name)
    }

    pub(crate) fn bytes(&self) -> &[u8; MAX_NAME_BYTES] {
        &self.0
    }

    pub(crate) fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(MAX_NAME_BYTES);
        std::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }

    pub(crate) fn check(&self, order: &Order) -> Result<()> {
        if self.as_str() == order.name() {
            return Ok(());
        }
        Err(Error::KeyOrderMismatch {
            stored: self.as_str().into(),
            requested: order.name().into(),
        })
    }
}

/// An order of which only the name is known: keys are their own stored forms.
pub(crate) struct Unknown(pub String);

impl KeyOrder for Unknown {
    fn name(&self) -> &str {
        &self.0
    }

    fn to_stored(&self, key: &[u8], into: &mut Vec<u8>) {
        into.extend_from_slice(key);
    }

    fn to_key(&self, stored: &[u8], into: &mut Vec<u8>) {
        into.extend_from_slice(stored);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(key: &[u8]) -> Vec<u8> {
        let mut stored = Vec::new();
        Reverse.to_stored(key, &mut stored);
        stored
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![0_u8..3, 253_u8..=255, any::<u8>()], 0..6)
    }

    proptest! {
        #[test]
        fn reverse_is_a_bijection_that_turns_the_order_round(a in keys(), b in keys()) {
            prop_assert_eq!(stored(&a).cmp(&stored(&b)), b.cmp(&a));
            let mut back = Vec::new();
            Reverse.to_key(&stored(&a), &mut back);
            prop_assert_eq!(&back, &a);
            Reverse.to_key(&b, &mut back);
        }
    }

    #[test]
    fn names_are_checked() {
        for name in ["", "bytewise", "a\0b", "123456789012345678901234567890123"] {
            let order: Arc<dyn KeyOrder> = Arc::new(Unknown(name.to_owned()));
            assert!(matches!(Order::new(Some(&order)), Err(Error::InvalidArgument { .. })));
        }
        let longest = OrderName::new("12345678901234567890123456789012");
        assert_eq!(OrderName::decode(*longest.bytes()), Some(longest));
        assert_eq!(OrderName::decode([0; MAX_NAME_BYTES]), None);
        let mut gap = *OrderName::new("a").bytes();
        gap[5] = b'b';
        assert_eq!(OrderName::decode(gap), None);
        assert_eq!(OrderName::decode([0xFF; MAX_NAME_BYTES]), None);
    }
}
