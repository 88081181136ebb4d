//! Keys as stored in nodes.

use std::ops::Deref;
use std::sync::Arc;

/// Bytes that fit, with the tag and the length, in the three words that a key takes anyway.
const INLINE: usize = 22;

/// A key: stored in place if it is short, otherwise shared between the copies of its node.
#[derive(Clone, Debug)]
pub struct Key(Place);

#[derive(Clone, Debug)]
enum Place {
    Inline { len: u8, bytes: [u8; INLINE] },
    Shared(Arc<[u8]>),
}

impl Key {
    /// Copies the key.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        if key.len() > INLINE {
            return Self(Place::Shared(Arc::from(key)));
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        Self(Place::Inline {
            len: key.len() as u8,
            bytes,
        })
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Place::Shared(bytes) => bytes,
        }
    }
}

/// Returns the length of the longest common prefix of two byte strings.
#[must_use]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        if a != b {
            break;
        }
        len += 8;
    }
    let rest = a[len..].iter().zip(&b[len..]);
    len + rest.take_while(|(a, b)| a == b).count()
}
