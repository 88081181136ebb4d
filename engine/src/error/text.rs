//! Texts of errors.

use std::fmt;
use std::ops::Deref;

/// A text in an [`Error`](super::Error); derefs to `str`.
///
/// It is one pointer long. Every `?` moves an error, and a `String` in each variant made that a
/// twentieth of the WebAssembly module.
#[derive(Clone, PartialEq, Eq, Hash)]
#[allow(clippy::box_collection, reason = "the box is what makes it short")]
pub struct Text(Box<String>);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Box::new(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}
