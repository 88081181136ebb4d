//! Ranges of records: bounds in JSON.

use std::ops::Bound;

use clap::Args;
use mangrove_engine::KeyRange;

use crate::codec::Raw;
use crate::failure::Result;

#[derive(Args)]
pub(crate) struct RangeArguments {
    /// First key, as JSON.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    start: Option<String>,
    /// Key before which the range ends, as JSON.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    end: Option<String>,
    /// Only keys that begin with these bytes, as JSON.
    #[arg(long, value_name = "KEY")]
    prefix: Option<String>,
}

/// A range in bytes.
pub(crate) struct ByteRange {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl RangeArguments {
    pub(crate) fn encode(&self, raw: Raw) -> Result<ByteRange> {
        let key = |name: &str, json: &Option<String>| {
            let key = json.as_deref().map(|json| raw.key(json)).transpose();
            key.map_err(|failure| failure.within(name))
        };
        let mut range = ByteRange {
            lower: key("--start", &self.start)?,
            upper: key("--end", &self.end)?,
        };
        if let Some(prefix) = key("--prefix", &self.prefix)? {
            // `None` sorts below every lower bound, so the greater of the two is the narrower.
            range.upper = [range.upper, mangrove_engine::prefix_end(&prefix)]
                .into_iter()
                .flatten()
                .min();
            range.lower = range.lower.max(Some(prefix));
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
