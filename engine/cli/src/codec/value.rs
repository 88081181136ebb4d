//! The value codecs of the JavaScript package, between stored bytes and JSON text.

use serde_json::value::RawValue;

use super::form::{Form, Scalar, parse};
use super::raw::{self, Raw};
use super::text::Text;
use super::{cbor_decode, cbor_encode};
use crate::failure::{Failure, Result};

/// Codec of a collection's values, by its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueCodec {
    Structured,
    Json,
    String,
    /// Bytes, or a codec that is not the package's.
    Raw(Option<Raw>),
}

impl ValueCodec {
    pub(crate) fn of(id: &str, raw: Option<Raw>) -> Self {
        match id {
            "structured" => Self::Structured,
            "json" => Self::Json,
            "string" => Self::String,
            _ => Self::Raw(raw),
        }
    }

    pub(crate) fn encode(self, json: &str) -> Result<Vec<u8>> {
        if self == Self::Json {
            // JSON that is stored as JSON has no tags.
            let checked: std::result::Result<&RawValue, _> = serde_json::from_str(json);
            return match checked {
                Ok(value) => Ok(value.get().as_bytes().to_vec()),
                Err(error) => Err(Failure::argument(format!("not JSON ({error})"))),
            };
        }
        let json = parse(json)?;
        if self == Self::Structured {
            return cbor_encode::encode(&json);
        }
        let form = Form::of(&json)?;
        match (self, &form) {
            (Self::String, Form::Scalar(Scalar::Text(Text::Unicode(text)))) => Some(text.as_bytes().to_vec()),
            (Self::Raw(raw), Form::Scalar(scalar)) => raw::read(raw, scalar),
            _ => None,
        }
        .ok_or_else(|| {
            let wanted = match self {
                Self::Raw(None) => "{\"$bytes\":…}, unless --raw says how strings stand for bytes",
                Self::Raw(Some(_)) => "bytes in the form that --raw names, or {\"$bytes\":…}",
                _ => "a string without lone surrogates",
            };
            let what = form.describe();
            Failure::value(format!(
                "{what} cannot be a value of this collection, which takes {wanted}"
            ))
        })
    }

    pub(crate) fn decode(self, bytes: &[u8]) -> Result<String> {
        Ok(match self {
            Self::Structured => {
                let value = cbor_decode::decode(bytes).ok_or_else(|| Failure::corrupt_value("structured"))?;
                value.to_string()
            }
            Self::Json => {
                let value: &RawValue = serde_json::from_slice(bytes).map_err(|_| Failure::corrupt_value("json"))?;
                // JSON strings write a line break as \n, so these line breaks are between tokens.
                value.get().replace(['\n', '\r'], " ")
            }
            Self::String => match str::from_utf8(bytes) {
                Ok(text) => Scalar::Text(Text::Unicode(text.to_owned())).to_json().to_string(),
                Err(_) => return Err(Failure::corrupt_value("string")),
            },
            Self::Raw(raw) => raw::write(raw, bytes).to_string(),
        })
    }
}
