//! Ranges of records: bounds in JSON, read by the collection's key codec.

use std::ops::Bound;

use clap::Args;
use mangrove_engine::KeyRange;

use crate::codec::{KeyCodec, parse};
use crate::failure::{Failure, Result};

#[derive(Args)]
pub(crate) struct RangeArguments {
    /// First key, as JSON.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    start: Option<String>,
    /// Key before which the range ends, as JSON.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    end: Option<String>,
    /// Only keys that begin with this string, these bytes or the elements of this array, as JSON.
    #[arg(long, value_name = "KEY")]
    prefix: Option<String>,
}

/// A range in bytes.
pub(crate) struct ByteRange {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl RangeArguments {
    pub(crate) fn encode(&self, codec: KeyCodec) -> Result<ByteRange> {
        let key = |name: &str, json: &Option<String>| {
            let Some(json) = json else { return Ok(None) };
            let key = parse(json).and_then(|json| codec.encode(&json));
            key.map(Some).map_err(|failure| failure.within(name))
        };
        let mut range = ByteRange {
            lower: key("--start", &self.start)?,
            upper: key("--end", &self.end)?,
        };
        if let Some(json) = &self.prefix {
            let bounds = parse(json).and_then(|json| codec.prefix(&json));
            let (lower, upper) = bounds.map_err(|failure: Failure| failure.within("--prefix"))?;
            // `None` sorts below every lower bound, so the greater of the two is the narrower.
            range.lower = range.lower.max(Some(lower));
            range.upper = [range.upper, upper].into_iter().flatten().min();
        }
        Ok(range)
    }
}

impl ByteRange {
    pub(crate) fn as_keys(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_deref().map_or(Bound::Unbounded, Bound::Included),
            upper: self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        }
    }
}
