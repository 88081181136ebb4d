//! Values of codec `structured` as JSON. Malformed bytes give `None`.

use std::collections::HashMap;

use minicbor::Decoder;
use minicbor::data::Type;
use num_bigint::{BigInt, Sign};
use serde_json::{Map, Value, json};

use super::form::{MAX_SAFE, Scalar, escape, tag, to_base64};
use super::profile::{
    ERROR_NAMES, HOLE, MAX_DEPTH, MAX_LENGTH, NAMED_BUFFERS, TAG_DATE, TAG_MAP, TAG_NEGATIVE_BIGINT, TAG_OBJECT,
    TAG_POSITIVE_BIGINT, TAG_REFERENCE, TAG_REGEXP, TAG_SET, TAG_WTF8, TYPED_ARRAYS, element_size, fits, round,
};
use super::text::Text;

pub(crate) fn decode(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader {
        cbor: Decoder::new(bytes),
        depth: 0,
        objects: 0,
        buffers: HashMap::new(),
    };
    let value = reader.value()?;
    (reader.cbor.position() == bytes.len()).then_some(value)
}

struct Reader<'a> {
    cbor: Decoder<'a>,
    depth: usize,
    /// Number of objects begun so far; references name objects by this ordinal.
    objects: u64,
    /// Bytes of the buffers of earlier objects, by ordinal.
    buffers: HashMap<u64, u64>,
}

impl<'a> Reader<'a> {
    fn begin(&mut self) {
        self.objects += 1;
    }

    fn begin_buffer(&mut self, bytes: u64) {
        self.buffers.insert(self.objects, bytes);
        self.begin();
    }

    fn remaining(&self) -> usize {
        self.cbor.input().len() - self.cbor.position()
    }

    /// Returns `count` if the remaining bytes can hold that many items of at least `size` bytes
    /// each.
    fn fitting(&self, count: u64, size: usize) -> Option<usize> {
        let count = usize::try_from(count).ok()?;
        (count.checked_mul(size)? <= self.remaining()).then_some(count)
    }

    fn array_len(&mut self) -> Option<usize> {
        let count = self.cbor.array().ok()??;
        self.fitting(count, 1)
    }

    fn map_len(&mut self) -> Option<usize> {
        let count = self.cbor.map().ok()??;
        self.fitting(count, 2)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        self.cbor.bytes().ok()
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Value>) -> Option<Value> {
        self.depth += 1;
        // A tag and its content count as two levels here and as one in the writer.
        if self.depth > 2 * MAX_DEPTH {
            return None;
        }
        let value = read(self)?;
        self.depth -= 1;
        Some(value)
    }

    fn value(&mut self) -> Option<Value> {
        Some(match self.cbor.datatype().ok()? {
            Type::Bool => Value::Bool(self.cbor.bool().ok()?),
            Type::Null => {
                self.cbor.null().ok()?;
                Value::Null
            }
            Type::Undefined => {
                self.cbor.undefined().ok()?;
                tag("undefined", true)
            }
            Type::Bytes => {
                let bytes = self.bytes()?;
                self.begin_buffer(bytes.len() as u64);
                Scalar::Bytes(bytes.to_vec()).to_json()
            }
            Type::String => Value::String(self.cbor.str().ok()?.to_owned()),
            Type::Array => {
                self.begin();
                return self.nested(Self::array);
            }
            Type::Map => {
                self.begin();
                return self.nested(Self::properties);
            }
            Type::Tag => {
                let number = self.cbor.tag().ok()?.as_u64();
                return self.nested(|reader| reader.tagged(number));
            }
            _ => Scalar::Number(self.number()?).to_json(),
        })
    }

    fn number(&mut self) -> Option<f64> {
        match self.cbor.datatype().ok()? {
            Type::F32 => self.cbor.f32().ok().map(f64::from),
            Type::F64 => self.cbor.f64().ok(),
            Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::Int => {
                let number = i128::from(self.cbor.int().ok()?);
                #[allow(clippy::cast_precision_loss, reason = "those that lose some are refused")]
                (-1 - MAX_SAFE as i128..=MAX_SAFE as i128)
                    .contains(&number)
                    .then_some(number as f64)
            }
            _ => None,
        }
    }

    fn array(&mut self) -> Option<Value> {
        let count = self.array_len()?;
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(match self.cbor.datatype().ok()? {
                Type::Simple if self.cbor.simple().ok()? == HOLE => tag("hole", true),
                Type::Simple => return None,
                _ => self.value()?,
            });
        }
        Some(Value::Array(elements))
    }

    fn text(&mut self) -> Option<Text> {
        if self.cbor.datatype().ok()? == Type::Tag {
            (self.cbor.tag().ok()?.as_u64() == TAG_WTF8).then_some(())?;
            return Text::from_wtf8(self.bytes()?);
        }
        self.cbor.str().ok().map(|text| Text::Unicode(text.to_owned()))
    }

    fn text_json(&mut self) -> Option<Value> {
        self.text().map(|text| Scalar::Text(text).to_json())
    }

    fn properties(&mut self) -> Option<Value> {
        let count = self.map_len()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            let name = self.text()?;
            pairs.push((name, self.value()?));
        }
        if pairs.iter().any(|(name, _)| matches!(name, Text::Units(_))) {
            let pairs = pairs
                .into_iter()
                .map(|(name, value)| json!([Scalar::Text(name).to_json(), value]));
            return Some(tag("object", pairs.collect::<Vec<_>>()));
        }
        let mut object = Map::new();
        for (name, value) in pairs {
            if let Text::Unicode(name) = name {
                object.insert(escape(&name).into_owned(), value);
            }
        }
        Some(Value::Object(object))
    }

    fn tagged(&mut self, number: u64) -> Option<Value> {
        Some(match number {
            TAG_REFERENCE => {
                let ordinal = self.cbor.u64().ok()?;
                (ordinal < self.objects).then(|| tag("ref", ordinal))?
            }
            TAG_POSITIVE_BIGINT => Scalar::Bigint(self.magnitude()?).to_json(),
            TAG_NEGATIVE_BIGINT => Scalar::Bigint(-1 - self.magnitude()?).to_json(),
            TAG_WTF8 => Scalar::Text(Text::from_wtf8(self.bytes()?)?).to_json(),
            TAG_DATE => self.date(1000.0)?,
            TAG_MAP => {
                self.begin();
                let count = self.map_len()?;
                let mut pairs = Vec::new();
                for _ in 0..count {
                    let key = self.value()?;
                    pairs.push(Value::Array(vec![key, self.value()?]));
                }
                tag("map", pairs)
            }
            TAG_SET => {
                self.begin();
                let count = self.array_len()?;
                let elements: Option<Vec<_>> = (0..count).map(|_| self.value()).collect();
                tag("set", elements?)
            }
            TAG_REGEXP => {
                (self.array_len()? == 2).then_some(())?;
                let parts = vec![self.text_json()?, self.text_json()?];
                self.begin();
                tag("regexp", parts)
            }
            TAG_OBJECT => self.named()?,
            _ => {
                let (name, _, size) = TYPED_ARRAYS.iter().find(|(_, tag, _)| *tag == number)?;
                self.buffer(name, *size)?
            }
        })
    }

    fn magnitude(&mut self) -> Option<BigInt> {
        self.bytes().map(|bytes| BigInt::from_bytes_be(Sign::Plus, bytes))
    }

    fn date(&mut self, unit: f64) -> Option<Value> {
        let time = self.number()?;
        self.begin();
        Some(Scalar::Date(round(time * unit)).to_json())
    }

    fn buffer(&mut self, name: &str, size: usize) -> Option<Value> {
        let bytes = self.bytes()?;
        self.begin_buffer(bytes.len() as u64);
        bytes
            .len()
            .is_multiple_of(size)
            .then(|| tag("buffer", json!([name, to_base64(bytes)])))
    }

    /// Reads bytes, or the ordinal of an object that has them; also returns their number.
    fn content(&mut self) -> Option<(Value, u64)> {
        if self.cbor.datatype().ok()? == Type::Bytes {
            let bytes = self.bytes()?;
            return Some((to_base64(bytes).into(), bytes.len() as u64));
        }
        let ordinal = self.cbor.u64().ok()?;
        Some((ordinal.into(), *self.buffers.get(&ordinal)?))
    }

    /// Reads a view of a part of a buffer.
    fn part(&mut self, name: &str) -> Option<Value> {
        let size = element_size(name)?;
        let (content, bytes) = self.content()?;
        let (start, length) = (self.cbor.u64().ok()?, self.cbor.u64().ok()?);
        fits(bytes, size, start, length).then_some(())?;
        self.begin_buffer(bytes);
        Some(tag("buffer", json!([name, content, start, length])))
    }

    /// Reads an array with other properties than its elements, or a sparse one. A sparse array is
    /// stored as its length, with its elements among the properties.
    fn array_with_properties(&mut self) -> Option<Value> {
        self.begin();
        let elements = if self.cbor.datatype().ok()? == Type::Array {
            self.array()?
        } else {
            let length = self.cbor.u64().ok()?;
            (length <= MAX_LENGTH).then(|| length.into())?
        };
        let properties = self.properties()?;
        let has_length = match properties.get("$object").and_then(Value::as_array) {
            Some(pairs) => pairs.iter().any(|pair| pair[0] == "length"),
            None => properties.get("length").is_some(),
        };
        (!has_length).then(|| tag("array", vec![elements, properties]))
    }

    /// Reads an object stored with the name of its class.
    fn named(&mut self) -> Option<Value> {
        let len = self.array_len()?;
        let Text::Unicode(name) = self.text()? else { return None };
        if ERROR_NAMES.contains(&&*name) {
            return self.error(&name, len.checked_sub(1)?);
        }
        if name == "Array" {
            (len == 3).then_some(())?;
            return self.array_with_properties();
        }
        if len == 4 {
            return self.part(&name);
        }
        (len == 2).then_some(())?;
        match &*name {
            "ArrayBuffer" => {
                let (content, bytes) = self.content()?;
                self.begin_buffer(bytes);
                Some(tag("buffer", json!([name, content])))
            }
            _ if NAMED_BUFFERS.contains(&&*name) => self.buffer(&name, 1),
            "Date" => self.date(1.0),
            "Number" | "String" | "Boolean" | "BigInt" => {
                self.begin();
                Some(tag("boxed", json!([name, self.value()?])))
            }
            _ => None,
        }
    }

    fn error(&mut self, name: &str, count: usize) -> Option<Value> {
        (2..=3).contains(&count).then_some(())?;
        self.begin();
        let mut error = json!({ "name": name });
        for part in ["message", "stack", "cause"].into_iter().take(count) {
            // `undefined` stands for a missing message or stack, while a cause may itself be
            // `undefined`.
            if part != "cause" && self.cbor.datatype().ok()? == Type::Undefined {
                self.cbor.undefined().ok()?;
            } else {
                error[part] = self.value()?;
            }
        }
        Some(tag("error", error))
    }
}
