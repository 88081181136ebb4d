//! The part of a collection that a follower watches.

use std::ops::Bound;

use mangrove_engine::{Change, Error, KeyRange, Result};

use crate::range;

/// The part of one collection that a follower watches.
pub(crate) struct Filter {
    pub(crate) name: String,
    pub(crate) key_codec: String,
    pub(crate) value_codec: String,
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl Filter {
    pub(crate) fn range(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_ref().map(Vec::as_slice),
            upper: self.upper.as_ref().map(Vec::as_slice),
        }
    }

    /// Whether the change touches the range. Fails on a change of codecs, because the
    /// follower cannot decode what comes after it.
    pub(crate) fn touches(&self, change: &Change) -> Result<bool> {
        Ok(match change {
            Change::Set { collection, key, .. } | Change::Delete { collection, key, .. } => {
                *collection == self.name && range::contains(&self.range(), key)
            }
            Change::Clear {
                collection,
                lower,
                upper,
            } => *collection == self.name && range::overlap(&self.range(), lower, upper),
            Change::Drop { collection } => *collection == self.name,
            Change::Rename { from, to } => *from == self.name || *to == self.name,
            Change::Codecs {
                collection,
                key_codec,
                value_codec,
            } => {
                if *collection == self.name && (*key_codec != self.key_codec || *value_codec != self.value_codec) {
                    return Err(Error::codec_mismatch(
                        self.name.as_str(),
                        [key_codec, "/", value_codec].concat(),
                        [self.key_codec.as_str(), "/", &self.value_codec].concat(),
                    ));
                }
                false
            }
            _ => false,
        })
    }
}
