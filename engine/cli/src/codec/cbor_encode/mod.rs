//! JSON as values of codec `structured`, in the bytes that the JavaScript package would write.

mod objects;

use std::collections::HashMap;
use std::convert::Infallible;

use minicbor::Encoder;
use minicbor::data::{Int, Tag};
use num_bigint::{BigInt, Sign};
use serde_json::{Map, Value};

use super::date;
use super::form::{Form, Scalar, bad_tag, is_safe_integer, unescape};
use super::profile::{
    HOLE, MAX_DEPTH, TAG_DATE, TAG_NEGATIVE_BIGINT, TAG_OBJECT, TAG_POSITIVE_BIGINT, TAG_REFERENCE, TAG_WTF8, round,
};
use super::text::Text;
use crate::failure::{Failure, Result};

/// Name of the tag for `undefined`.
const UNDEFINED: &str = "undefined";

pub(crate) fn encode(json: &Value) -> Result<Vec<u8>> {
    let mut writer = Writer {
        cbor: Encoder::new(Vec::new()),
        depth: 0,
        objects: 0,
        buffers: HashMap::new(),
    };
    if matches!(Form::of(json)?, Form::Tagged(UNDEFINED, _)) {
        return Err(Failure::value(
            "undefined cannot be stored, because it means no entry; null can",
        ));
    }
    writer.value(json)?;
    Ok(writer.cbor.into_writer())
}

impl From<minicbor::encode::Error<Infallible>> for Failure {
    fn from(error: minicbor::encode::Error<Infallible>) -> Self {
        Self::value(error.to_string())
    }
}

struct Writer {
    cbor: Encoder<Vec<u8>>,
    depth: usize,
    objects: u64,
    /// Bytes of the buffers of earlier objects, by ordinal.
    buffers: HashMap<u64, u64>,
}

impl Writer {
    fn tag(&mut self, number: u64) -> Result<()> {
        self.cbor.tag(Tag::new(number))?;
        Ok(())
    }

    /// Counts an object as it begins; everything that is an object in JavaScript counts.
    fn begin(&mut self) -> Result<()> {
        self.objects += 1;
        if self.depth >= MAX_DEPTH {
            return Err(Failure::value(format!(
                "a value nested more than {MAX_DEPTH} deep cannot be stored"
            )));
        }
        Ok(())
    }

    fn value(&mut self, json: &Value) -> Result<()> {
        match Form::of(json)? {
            Form::Scalar(scalar) => self.scalar(&scalar),
            Form::Array(elements) => {
                self.begin()?;
                self.array(elements)
            }
            Form::Object(properties) => {
                self.begin()?;
                self.properties(properties)
            }
            Form::Tagged("hole", _) => Err(Failure::value("{\"$hole\":true} can only be an element of an array")),
            Form::Tagged("ref", payload) => self.reference(payload),
            Form::Tagged(UNDEFINED, Value::Bool(true)) => {
                self.cbor.undefined()?;
                Ok(())
            }
            Form::Tagged(UNDEFINED, _) => Err(bad_tag(UNDEFINED, "true")),
            Form::Tagged(name, payload) => {
                self.begin()?;
                self.depth += 1;
                self.tagged(name, payload)?;
                self.depth -= 1;
                Ok(())
            }
        }
    }

    fn scalar(&mut self, scalar: &Scalar) -> Result<()> {
        match scalar {
            Scalar::Null => {
                self.cbor.null()?;
            }
            Scalar::Bool(value) => {
                self.cbor.bool(*value)?;
            }
            Scalar::Number(number) => self.number(*number)?,
            Scalar::Bigint(number) => self.bigint(number)?,
            Scalar::Date(ms) => {
                self.begin()?;
                self.date(*ms)?;
            }
            Scalar::Text(text) => self.text(text)?,
            Scalar::Bytes(bytes) => {
                self.begin()?;
                self.buffers.insert(self.objects - 1, bytes.len() as u64);
                self.cbor.bytes(bytes)?;
            }
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        let single = number as f32;
        if is_safe_integer(number) && (number != 0.0 || number.is_sign_positive()) {
            self.cbor.int(Int::from(number as i64))?;
        } else if number.is_nan() || f64::from(single).to_bits() == number.to_bits() {
            self.cbor.f32(if number.is_nan() { f32::NAN } else { single })?;
        } else {
            self.cbor.f64(number)?;
        }
        Ok(())
    }

    fn bigint(&mut self, number: &BigInt) -> Result<()> {
        let is_negative = number.sign() == Sign::Minus;
        let magnitude = if is_negative { -1 - number } else { number.clone() };
        let bytes = if magnitude.sign() == Sign::NoSign {
            Vec::new()
        } else {
            magnitude.to_bytes_be().1
        };
        self.tag(if is_negative {
            TAG_NEGATIVE_BIGINT
        } else {
            TAG_POSITIVE_BIGINT
        })?;
        self.cbor.bytes(&bytes)?;
        Ok(())
    }

    fn text(&mut self, text: &Text) -> Result<()> {
        match text {
            Text::Unicode(text) => {
                self.cbor.str(text)?;
            }
            Text::Units(_) => {
                self.tag(TAG_WTF8)?;
                self.cbor.bytes(&text.to_wtf8())?;
            }
        }
        Ok(())
    }

    /// Writes a date in seconds, or in milliseconds where seconds are not exact. CBOR counts
    /// seconds, which cannot hold every millisecond far from 1970.
    fn date(&mut self, ms: f64) -> Result<()> {
        let seconds = ms / 1000.0;
        #[allow(clippy::float_cmp, reason = "whether it comes back exactly is the question")]
        if ms.is_nan() || (date::is_time(ms) && round(seconds * 1000.0) == ms) {
            self.tag(TAG_DATE)?;
            return self.number(seconds);
        }
        self.named("Date", 1)?;
        self.number(ms)
    }

    /// Writes the head of `[class name, ...arguments]`.
    fn named(&mut self, name: &str, arguments: u64) -> Result<()> {
        self.tag(TAG_OBJECT)?;
        self.cbor.array(arguments + 1)?.str(name)?;
        Ok(())
    }

    fn array(&mut self, elements: &[Value]) -> Result<()> {
        self.depth += 1;
        self.cbor.array(elements.len() as u64)?;
        for element in elements {
            match Form::of(element)? {
                Form::Tagged("hole", Value::Bool(true)) => {
                    self.cbor.simple(HOLE)?;
                }
                Form::Tagged("hole", _) => return Err(bad_tag("hole", "true")),
                _ => self.value(element)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn properties(&mut self, properties: &Map<String, Value>) -> Result<()> {
        self.depth += 1;
        self.cbor.map(properties.len() as u64)?;
        for (name, value) in properties {
            self.cbor.str(unescape(name)?)?;
            self.value(value)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn reference(&mut self, payload: &Value) -> Result<()> {
        let ordinal = payload.as_u64().filter(|ordinal| *ordinal < self.objects);
        let ordinal = ordinal.ok_or_else(|| bad_tag("ref", "the ordinal of an object that began before"))?;
        self.tag(TAG_REFERENCE)?;
        self.cbor.u64(ordinal)?;
        Ok(())
    }
}
