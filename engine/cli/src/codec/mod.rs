//! Keys and values of the JavaScript package's codecs as JSON.

mod cbor_decode;
mod cbor_encode;
mod date;
mod form;
mod key;
mod profile;
mod raw;
mod text;
mod value;

pub(crate) use form::parse;
pub(crate) use key::KeyCodec;
pub(crate) use raw::Raw;
pub(crate) use value::ValueCodec;

/// Codecs of a collection that names none when it is created, as in the JavaScript package.
pub(crate) const DEFAULT_CODECS: (&str, &str) = ("any", "structured");
