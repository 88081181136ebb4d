//! JSON, as far as reports need it.

use mangrove_engine::Error;

/// A JSON object being written.
pub struct Object(String);

impl Default for Object {
    fn default() -> Self {
        Self("{".to_owned())
    }
}

impl Object {
    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
    }

    /// Adds a property whose value is JSON.
    #[must_use]
    pub fn raw(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push_str(value);
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, name: &str, value: u64) -> Self {
        self.raw(name, &value.to_string())
    }

    /// Adds `true` or `false`.
    #[must_use]
    pub fn flag(self, name: &str, value: bool) -> Self {
        self.raw(name, if value { "true" } else { "false" })
    }

    /// Adds a string.
    #[must_use]
    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => {
                    self.0.push('\\');
                    self.0.push(character);
                }
                ' '.. => self.0.push(character),
                _ => {
                    self.0.push_str(if character < '\u{10}' { "\\u000" } else { "\\u001" });
                    self.0.extend(char::from_digit(character as u32 & 15, 16));
                }
            }
        }
        self.0.push('"');
        self
    }

    /// Returns the whole object.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Returns a JSON array of JSON values.
pub fn array(items: impl Iterator<Item = String>) -> String {
    let mut text = "[".to_owned();
    for item in items {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push(']');
    text
}

/// Returns a `VerifyProblem` of the TypeScript API.
#[must_use]
pub fn problem(error: &Error) -> String {
    let mut object = Object::default()
        .text("code", error.code())
        .text("message", &error.to_string());
    if let Error::Corrupt(corruption) = error {
        if let Some(unit) = corruption.unit {
            object = object.number("page", unit);
        }
        if let Some(collection) = &corruption.collection {
            object = object.text("collection", collection);
        }
    }
    object.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let object = Object::default()
            .text("a", "\"\\\n\u{1f}ü")
            .flag("b", true)
            .number("c", 7);
        assert_eq!(object.end(), "{\"a\":\"\\\"\\\\\\u000a\\u001fü\",\"b\":true,\"c\":7}");
        assert_eq!(Object::default().end(), "{}");
        assert_eq!(array(["1".to_owned(), "2".to_owned()].into_iter()), "[1,2]");
    }
}
