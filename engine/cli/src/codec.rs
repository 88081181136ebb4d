//! Keys and values as JSON: strings that stand for bytes, whatever codecs a collection has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// How strings stand for bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Raw {
    /// The text itself; bytes that are not UTF-8 are {"$bytes":…}.
    Utf8,
    /// Two hexadecimal digits for each byte.
    Hex,
    /// RFC 4648 with padding.
    Base64,
}

impl Raw {
    pub(crate) fn show(self, bytes: &[u8]) -> Value {
        match self {
            Self::Utf8 => match str::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => json!({ "$bytes": BASE64.encode(bytes) }),
            },
            Self::Hex => bytes
                .iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .map(|nibble| char::from(b"0123456789abcdef"[usize::from(nibble)]))
                .collect::<String>()
                .into(),
            Self::Base64 => BASE64.encode(bytes).into(),
        }
    }

    pub(crate) fn key(self, json: &str) -> Result<Vec<u8>> {
        self.read(json, Failure::key)
            .map_err(|failure| failure.within("the key"))
    }

    pub(crate) fn value(self, json: &str) -> Result<Vec<u8>> {
        self.read(json, Failure::value)
            .map_err(|failure| failure.within("the value"))
    }

    fn read(self, json: &str, refuse: impl FnOnce(&'static str) -> Failure) -> Result<Vec<u8>> {
        let parsed = serde_json::from_str(json)
            .map_err(|error| Failure::argument(format!("not JSON ({error}); a string is written as '\"text\"'")))?;
        self.bytes(&parsed)
            .ok_or_else(|| refuse("it has to be a string in the form that --raw names, or {\"$bytes\":\"base64\"}"))
    }

    /// The bytes of a string in this form, or of {"$bytes":…} in any case.
    fn bytes(self, json: &Value) -> Option<Vec<u8>> {
        match json {
            Value::String(text) => match self {
                Self::Utf8 => Some(text.as_bytes().to_vec()),
                Self::Hex => from_hex(text.as_bytes()),
                Self::Base64 => BASE64.decode(text).ok(),
            },
            Value::Object(properties) if properties.len() == 1 => {
                BASE64.decode(properties.get("$bytes")?.as_str()?).ok()
            }
            _ => None,
        }
    }
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_chunks::<2>() else {
        return None;
    };
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}
