//! Keys and values of collections without a codec, or with one that is not the package's: bytes.

use clap::ValueEnum;
use serde_json::Value;

use super::form::{Scalar, read_base64, to_base64};
use super::text::Text;

/// How strings represent bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Raw {
    /// The text itself; bytes that are not UTF-8 stay {"$bytes":…}.
    Utf8,
    /// Two hexadecimal digits for each byte.
    Hex,
    /// RFC 4648 with padding.
    Base64,
}

pub(crate) fn write(raw: Option<Raw>, bytes: &[u8]) -> Value {
    let text = match raw {
        None => None,
        Some(Raw::Utf8) => String::from_utf8(bytes.to_vec()).ok(),
        Some(Raw::Hex) => Some(
            bytes
                .iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .map(to_digit)
                .collect(),
        ),
        Some(Raw::Base64) => Some(to_base64(bytes)),
    };
    text.map_or_else(|| Scalar::Bytes(bytes.to_vec()).to_json(), Value::String)
}

/// Returns the bytes of a string in the form that `raw` names, or of {"$bytes":…} in any case.
pub(crate) fn read(raw: Option<Raw>, scalar: &Scalar) -> Option<Vec<u8>> {
    match (scalar, raw) {
        (Scalar::Bytes(bytes), _) => Some(bytes.clone()),
        (Scalar::Text(Text::Unicode(text)), Some(raw)) => match raw {
            Raw::Utf8 => Some(text.as_bytes().to_vec()),
            Raw::Hex => from_hex(text.as_bytes()),
            Raw::Base64 => read_base64("bytes", &Value::String(text.clone())).ok(),
        },
        _ => None,
    }
}

fn to_digit(nibble: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(nibble)])
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
