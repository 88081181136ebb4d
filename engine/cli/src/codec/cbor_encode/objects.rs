//! Objects that JSON shows by a tag.

use serde_json::Value;

use super::super::form::{Form, Scalar, bad_tag, is_safe_integer, read_base64};
use super::super::profile::{
    ERROR_NAMES, MAX_LENGTH, NAMED_BUFFERS, TAG_MAP, TAG_REGEXP, TAG_SET, TYPED_ARRAYS, element_size, fits,
};
use super::Writer;
use crate::failure::{Failure, Result};

/// Returns the elements of the array that a tag holds.
fn list<'a>(name: &str, payload: &'a Value) -> Result<&'a [Value]> {
    payload
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| bad_tag(name, "an array"))
}

fn pairs<'a>(name: &'a str, payload: &'a Value) -> Result<impl ExactSizeIterator<Item = Result<&'a [Value; 2]>>> {
    let bad = move || bad_tag(name, "an array of pairs");
    let pair = move |pair: &'a Value| pair.as_array().and_then(|pair| pair.as_array::<2>()).ok_or_else(bad);
    Ok(list(name, payload)?.iter().map(pair))
}

/// Returns a number from 0 to 2^53 - 1.
fn whole(json: &Value) -> Option<u64> {
    let number = json.as_f64()?;
    let is_whole = is_safe_integer(number) && number.is_sign_positive();
    is_whole.then(|| u64::try_from(number as i64).ok()).flatten()
}

#[cold]
fn unknown(name: &str) -> Failure {
    Failure::argument(format!(
        "${name} stands for nothing; a property of that name is written $${name}"
    ))
}

impl Writer {
    fn text_of(&mut self, name: &str, json: &Value) -> Result<()> {
        match Form::of(json)? {
            Form::Scalar(Scalar::Text(text)) => self.text(&text),
            other => Err(bad_tag(name, &format!("a string where it holds {}", other.describe()))),
        }
    }

    /// Writes what only values, not keys, can be. Nested values recurse through here, so each kind
    /// has its own function and stack frame.
    pub(super) fn tagged(&mut self, name: &str, payload: &Value) -> Result<()> {
        match name {
            "map" => self.map(payload),
            "set" => self.set(payload),
            "object" => self.named_pairs(name, payload),
            "array" => self.array_with_properties(payload),
            "regexp" => self.regexp(payload),
            "buffer" => self.buffer(payload),
            "boxed" => self.boxed(payload),
            "error" => self.error(payload),
            _ => Err(unknown(name)),
        }
    }

    #[inline(never)]
    fn map(&mut self, payload: &Value) -> Result<()> {
        let pairs = pairs("map", payload)?;
        self.tag(TAG_MAP)?;
        self.cbor.map(pairs.len() as u64)?;
        for pair in pairs {
            let [key, value] = pair?;
            self.value(key)?;
            self.value(value)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn set(&mut self, payload: &Value) -> Result<()> {
        let elements = list("set", payload)?;
        self.tag(TAG_SET)?;
        self.cbor.array(elements.len() as u64)?;
        elements.iter().try_for_each(|element| self.value(element))
    }

    #[inline(never)]
    fn regexp(&mut self, payload: &Value) -> Result<()> {
        let Some([source, flags]) = payload.as_array().and_then(|parts| parts.as_array()) else {
            return Err(bad_tag("regexp", "[source, flags]"));
        };
        self.tag(TAG_REGEXP)?;
        self.cbor.array(2)?;
        self.text_of("regexp", source)?;
        self.text_of("regexp", flags)
    }

    #[inline(never)]
    fn named_pairs(&mut self, name: &str, payload: &Value) -> Result<()> {
        let pairs = pairs(name, payload)?;
        self.cbor.map(pairs.len() as u64)?;
        for pair in pairs {
            let [key, value] = pair?;
            self.text_of(name, key)?;
            self.value(value)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn array_with_properties(&mut self, payload: &Value) -> Result<()> {
        let bad = |what| bad_tag("array", what);
        let wanted = "[elements or length, properties]";
        let Some([elements, properties]) = payload.as_array().and_then(|parts| parts.as_array()) else {
            return Err(bad(wanted));
        };
        self.named("Array", 2)?;
        // The elements are at the depth of any array's elements.
        self.depth -= 1;
        match (elements, whole(elements)) {
            (Value::Array(elements), _) => self.array(elements)?,
            (_, Some(length)) if length <= MAX_LENGTH => {
                self.cbor.u64(length)?;
            }
            _ => return Err(bad(wanted)),
        }
        let none = "properties, of which none is length";
        match Form::of(properties)? {
            Form::Object(properties) if !properties.contains_key("length") => self.properties(properties)?,
            Form::Tagged("object", payload) => {
                let is_length = |pair: &Value| pair.get(0).is_some_and(|name| name == "length");
                if payload.as_array().is_some_and(|pairs| pairs.iter().any(is_length)) {
                    return Err(bad(none));
                }
                self.depth += 1;
                self.named_pairs("object", payload)?;
                self.depth -= 1;
            }
            _ => return Err(bad(none)),
        }
        self.depth += 1;
        Ok(())
    }

    /// Writes the bytes of a view or buffer, or the ordinal of an earlier object that has them.
    /// Returns their number.
    fn content(&mut self, content: &Value) -> Result<u64> {
        if content.is_number() {
            let known = whole(content).and_then(|ordinal| Some((ordinal, *self.buffers.get(&ordinal)?)));
            let (ordinal, bytes) = known
                .ok_or_else(|| bad_tag("buffer", "base64, or the ordinal of a buffer or view that began before"))?;
            self.cbor.u64(ordinal)?;
            return Ok(bytes);
        }
        let bytes = read_base64("buffer", content)?;
        self.cbor.bytes(&bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Writes a view of a part of a buffer.
    fn part(&mut self, [name, content, start, length]: &[Value; 4]) -> Result<()> {
        let name = name.as_str().unwrap_or_default();
        let (Some(size), Some(start), Some(length)) = (element_size(name), whole(start), whole(length)) else {
            return Err(bad_tag(
                "buffer",
                "[class name of a view, base64 or ordinal, first byte, bytes]",
            ));
        };
        let ordinal = self.objects - 1;
        self.named(name, 3)?;
        let bytes = self.content(content)?;
        if !fits(bytes, size, start, length) {
            return Err(bad_tag("buffer", "a view within its buffer"));
        }
        self.buffers.insert(ordinal, bytes);
        self.cbor.u64(start)?.u64(length)?;
        Ok(())
    }

    #[inline(never)]
    fn buffer(&mut self, payload: &Value) -> Result<()> {
        let bad = |what| bad_tag("buffer", what);
        if let Some(part) = payload.as_array().and_then(|parts| parts.as_array::<4>()) {
            return self.part(part);
        }
        if let Some([Value::String(name), content]) = payload.as_array().and_then(|parts| parts.as_array())
            && name == "ArrayBuffer"
        {
            let ordinal = self.objects - 1;
            self.named(name, 1)?;
            let bytes = self.content(content)?;
            self.buffers.insert(ordinal, bytes);
            return Ok(());
        }
        let Some([Value::String(name), content]) = payload.as_array().and_then(|parts| parts.as_array()) else {
            return Err(bad("[class name, base64]"));
        };
        let bytes = read_base64("buffer", content)?;
        self.buffers.insert(self.objects - 1, bytes.len() as u64);
        if let Some((_, tag, size)) = TYPED_ARRAYS.iter().find(|(known, _, _)| known == name) {
            if bytes.len() % size != 0 {
                return Err(bad("whole elements"));
            }
            self.tag(*tag)?;
        } else if NAMED_BUFFERS.contains(&&**name) {
            self.named(name, 1)?;
        } else {
            return Err(bad(
                "the class of a typed array other than Uint8Array, \"ArrayBuffer\" or \"DataView\"",
            ));
        }
        self.cbor.bytes(&bytes)?;
        Ok(())
    }

    #[inline(never)]
    fn boxed(&mut self, payload: &Value) -> Result<()> {
        if let Some([Value::String(name), value]) = payload.as_array().and_then(|parts| parts.as_array())
            && matches!(
                (&**name, Form::of(value)?),
                ("Number", Form::Scalar(Scalar::Number(_)))
                    | ("String", Form::Scalar(Scalar::Text(_)))
                    | ("Boolean", Form::Scalar(Scalar::Bool(_)))
                    | ("BigInt", Form::Scalar(Scalar::Bigint(_)))
            )
        {
            self.named(name, 1)?;
            return self.value(value);
        }
        Err(bad_tag("boxed", "[class name, primitive of that class]"))
    }

    #[inline(never)]
    fn error(&mut self, payload: &Value) -> Result<()> {
        let bad = || {
            bad_tag(
                "error",
                "{\"name\":…} with message, stack and cause as far as there are any",
            )
        };
        let parts = payload.as_object().ok_or_else(bad)?;
        let name = parts
            .get("name")
            .and_then(Value::as_str)
            .filter(|name| ERROR_NAMES.contains(name));
        let name = name.ok_or_else(bad)?;
        if parts
            .keys()
            .any(|key| !["name", "message", "stack", "cause"].contains(&&**key))
        {
            return Err(bad());
        }
        let cause = parts.get("cause");
        self.named(name, 2 + u64::from(cause.is_some()))?;
        for part in ["message", "stack"] {
            match parts.get(part) {
                Some(part) => self.value(part)?,
                None => {
                    self.cbor.undefined()?;
                }
            }
        }
        cause.map_or(Ok(()), |cause| self.value(cause))
    }
}
