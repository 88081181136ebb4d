//! The key codecs of the JavaScript package: bytes that sort as the keys do.

use num_bigint::{BigInt, Sign};
use serde_json::Value;

use super::form::{Form, Scalar, is_safe_integer};
use super::raw::{self, Raw};
use super::text::Text;
use crate::failure::{Failure, Result};

const TAG_NULL: u8 = 0x05;
const TAG_FALSE: u8 = 0x08;
const TAG_TRUE: u8 = 0x09;
const TAG_NUMBER: u8 = 0x10;
const TAG_BIGINT: u8 = 0x18;
const TAG_DATE: u8 = 0x20;
const TAG_STRING: u8 = 0x30;
const TAG_BINARY: u8 = 0x40;
const TAG_ARRAY: u8 = 0x50;

/// Deepest nesting of arrays.
const MAX_DEPTH: usize = 64;

/// Codec of a collection's keys, by its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyCodec {
    Any,
    Tuple,
    String,
    Utf8,
    Uint32,
    Int53,
    Uint64,
    /// Bytes, or a codec that is not the package's.
    Raw(Option<Raw>),
}

impl KeyCodec {
    pub(crate) fn of(id: &str, raw: Option<Raw>) -> Self {
        match id {
            "any" => Self::Any,
            "tuple" => Self::Tuple,
            "string" => Self::String,
            "utf8" => Self::Utf8,
            "uint32" => Self::Uint32,
            "int53" => Self::Int53,
            "uint64" => Self::Uint64,
            _ => Self::Raw(raw),
        }
    }

    pub(crate) fn encode(self, json: &Value) -> Result<Vec<u8>> {
        let form = Form::of(json)?;
        match (self, &form) {
            (Self::Any, _) | (Self::Tuple, Form::Array(_)) => {
                let mut bytes = Vec::new();
                put(&mut bytes, &form, 0)?;
                Ok(bytes)
            }
            (Self::String, Form::Scalar(Scalar::Text(text))) => Ok(text.to_unit_bytes()),
            (Self::Utf8, Form::Scalar(Scalar::Text(Text::Unicode(text)))) => Ok(text.as_bytes().to_vec()),
            (Self::Uint32, Form::Scalar(Scalar::Number(number)))
                if is_safe_integer(*number) && (0.0..=f64::from(u32::MAX)).contains(number) =>
            {
                #[allow(clippy::cast_sign_loss, reason = "it was just compared with 0")]
                Ok((*number as u32).to_be_bytes().to_vec())
            }
            (Self::Int53, Form::Scalar(Scalar::Number(number))) if is_safe_integer(*number) => {
                Ok(((*number as i64) ^ i64::MIN).to_be_bytes().to_vec())
            }
            (Self::Uint64, Form::Scalar(Scalar::Bigint(number))) => match u64::try_from(number) {
                Ok(number) => Ok(number.to_be_bytes().to_vec()),
                Err(_) => Err(self.refuse(&form)),
            },
            (Self::Raw(raw), Form::Scalar(scalar)) => raw::read(raw, scalar).ok_or_else(|| self.refuse(&form)),
            _ => Err(self.refuse(&form)),
        }
    }

    fn refuse(self, form: &Form<'_>) -> Failure {
        let wanted = match self {
            Self::Any => "a key",
            Self::Tuple => "an array",
            Self::String => "a string",
            Self::Utf8 => "a string without lone surrogates",
            Self::Uint32 => "an integer from 0 to 2^32 - 1",
            Self::Int53 => "a safe integer",
            Self::Uint64 => "{\"$bigint\":…} from 0 to 2^64 - 1",
            Self::Raw(None) => "{\"$bytes\":…}, unless --raw says how strings stand for bytes",
            Self::Raw(Some(_)) => "bytes in the form that --raw names, or {\"$bytes\":…}",
        };
        Failure::key(format!(
            "{} cannot be a key of this collection, which takes {wanted}",
            form.describe()
        ))
    }

    pub(crate) fn decode(self, bytes: &[u8]) -> Result<Value> {
        let (id, scalar) = match self {
            Self::Any | Self::Tuple => {
                let mut reader = Reader(bytes);
                let key = reader.key(0).filter(|_| reader.0.is_empty());
                let key = key.filter(|key| self == Self::Any || key.is_array());
                return key.ok_or_else(|| Failure::corrupt_key(if self == Self::Any { "any" } else { "tuple" }));
            }
            Self::Raw(raw) => return Ok(raw::write(raw, bytes)),
            Self::String => ("string", Text::from_unit_bytes(bytes).map(Scalar::Text)),
            Self::Utf8 => {
                let text = str::from_utf8(bytes).map(|text| Scalar::Text(Text::Unicode(text.to_owned())));
                ("utf8", text.ok())
            }
            Self::Uint32 => {
                let number = bytes.try_into().map(u32::from_be_bytes).map(f64::from);
                ("uint32", number.ok().map(Scalar::Number))
            }
            Self::Int53 => {
                let number = bytes.try_into().ok().map(|bytes| i64::from_be_bytes(bytes) ^ i64::MIN);
                #[allow(clippy::cast_precision_loss, reason = "numbers that lose some are refused")]
                let number = number
                    .map(|number| number as f64)
                    .filter(|number| is_safe_integer(*number));
                ("int53", number.map(Scalar::Number))
            }
            Self::Uint64 => {
                let number = bytes.try_into().map(u64::from_be_bytes);
                ("uint64", number.ok().map(|number| Scalar::Bigint(number.into())))
            }
        };
        scalar
            .map(|scalar| scalar.to_json())
            .ok_or_else(|| Failure::corrupt_key(id))
    }

    /// Returns the first key with a prefix, and the end of the keys with that prefix. A prefix is a
    /// string, bytes or the elements of an array.
    pub(crate) fn prefix(self, json: &Value) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let form = Form::of(json)?;
        if !matches!(form, Form::Array(_) | Form::Scalar(Scalar::Text(_) | Scalar::Bytes(_))) {
            return Err(Failure::argument("a prefix has to be a string, bytes or an array"));
        }
        let lower = self.encode(json)?;
        let upper = match form {
            // Only an escaped zero in the last element continues with `FF`: ["a"] is no prefix of
            // ["a\0"].
            Form::Array(_) => Some([&lower[..], &[0xff]].concat()),
            _ => mangrove_engine::prefix_end(&lower),
        };
        Ok((lower, upper))
    }
}

fn put_double(bytes: &mut Vec<u8>, number: f64) {
    // -0 and 0 are one key.
    let bits = if number == 0.0 { 0 } else { number.to_bits() };
    let flip = if bits >> 63 == 1 { u64::MAX } else { 1 << 63 };
    bytes.extend((bits ^ flip).to_be_bytes());
}

fn put_bigint(bytes: &mut Vec<u8>, number: &BigInt) {
    let (sign, magnitude) = number.to_bytes_be();
    let magnitude = if sign == Sign::NoSign { Vec::new() } else { magnitude };
    let flip = if sign == Sign::Minus { 0xff } else { 0 };
    match magnitude.len() {
        len @ 0..=126 if flip == 0 => bytes.push(0x80 + len as u8),
        len @ 0..=126 => bytes.push(0x80 - len as u8),
        len => {
            bytes.push(if flip == 0 { 0xff } else { 0x01 });
            bytes.extend((len as u32).to_be_bytes().map(|byte| byte ^ flip));
        }
    }
    bytes.extend(magnitude.iter().map(|byte| byte ^ flip));
}

/// Writes a string, bytes or an array, terminated inside an array. At depth 0 it runs to the end.
fn put_run(bytes: &mut Vec<u8>, content: &[u8], depth: usize) {
    if depth == 0 {
        bytes.extend_from_slice(content);
        return;
    }
    for byte in content {
        bytes.push(*byte);
        if *byte == 0 {
            bytes.push(0xff);
        }
    }
    bytes.push(0);
}

fn put(bytes: &mut Vec<u8>, form: &Form<'_>, depth: usize) -> Result<()> {
    match form {
        Form::Scalar(Scalar::Null) => bytes.push(TAG_NULL),
        Form::Scalar(Scalar::Bool(value)) => bytes.push(if *value { TAG_TRUE } else { TAG_FALSE }),
        Form::Scalar(Scalar::Number(number)) if !number.is_nan() => {
            bytes.push(TAG_NUMBER);
            put_double(bytes, *number);
        }
        Form::Scalar(Scalar::Date(ms)) if !ms.is_nan() => {
            bytes.push(TAG_DATE);
            put_double(bytes, *ms);
        }
        Form::Scalar(Scalar::Bigint(number)) => {
            bytes.push(TAG_BIGINT);
            put_bigint(bytes, number);
        }
        Form::Scalar(Scalar::Text(text)) => {
            bytes.push(TAG_STRING);
            put_run(bytes, &text.to_unit_bytes(), depth);
        }
        Form::Scalar(Scalar::Bytes(content)) => {
            bytes.push(TAG_BINARY);
            put_run(bytes, content, depth);
        }
        Form::Array(_) if depth >= MAX_DEPTH => {
            return Err(Failure::key(format!(
                "an array nested more than {MAX_DEPTH} deep cannot be a key"
            )));
        }
        Form::Array(elements) => {
            bytes.push(TAG_ARRAY);
            for element in *elements {
                put(bytes, &Form::of(element)?, depth + 1)?;
            }
            if depth > 0 {
                bytes.push(0);
            }
        }
        Form::Scalar(Scalar::Number(_)) => return Err(Failure::key("NaN cannot be a key")),
        Form::Scalar(Scalar::Date(_)) => return Err(Failure::key("an invalid date cannot be a key")),
        _ => return Err(Failure::key(format!("{} cannot be a key", form.describe()))),
    }
    Ok(())
}

/// Reads keys from bytes; `None` for anything malformed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn key(&mut self, depth: usize) -> Option<Value> {
        let scalar = match self.byte()? {
            TAG_NULL => Scalar::Null,
            TAG_FALSE => Scalar::Bool(false),
            TAG_TRUE => Scalar::Bool(true),
            TAG_NUMBER => Scalar::Number(self.double()?),
            TAG_DATE => Scalar::Date(self.double()?),
            TAG_BIGINT => Scalar::Bigint(self.bigint()?),
            TAG_STRING => Scalar::Text(Text::from_unit_bytes(&self.run(depth)?)?),
            TAG_BINARY => Scalar::Bytes(self.run(depth)?),
            TAG_ARRAY => return self.array(depth),
            _ => return None,
        };
        Some(scalar.to_json())
    }

    fn double(&mut self) -> Option<f64> {
        let bits = u64::from_be_bytes(self.take(8)?.try_into().ok()?);
        let flip = if bits >> 63 == 1 { 1 << 63 } else { u64::MAX };
        Some(f64::from_bits(bits ^ flip))
    }

    fn bigint(&mut self) -> Option<BigInt> {
        let first = self.byte()?;
        let (sign, flip) = if first < 0x80 {
            (Sign::Minus, 0xff)
        } else {
            (Sign::Plus, 0)
        };
        let count = match first {
            0x01 | 0xff => {
                let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
                u32::from_be_bytes(bytes.map(|byte| byte ^ flip)) as usize
            }
            _ => usize::from(first.abs_diff(0x80)),
        };
        let magnitude: Vec<u8> = self.take(count)?.iter().map(|byte| byte ^ flip).collect();
        Some(BigInt::from_bytes_be(sign, &magnitude))
    }

    fn run(&mut self, depth: usize) -> Option<Vec<u8>> {
        if depth == 0 {
            return self.take(self.0.len()).map(<[u8]>::to_vec);
        }
        let mut content = Vec::new();
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                if self.0.first() != Some(&0xff) {
                    return Some(content);
                }
                self.byte()?;
            }
            content.push(byte);
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        if depth >= MAX_DEPTH {
            return None;
        }
        let mut elements = Vec::new();
        loop {
            match self.0.first() {
                None if depth == 0 => return Some(Value::Array(elements)),
                Some(0) if depth > 0 => {
                    self.byte()?;
                    return Some(Value::Array(elements));
                }
                _ => elements.push(self.key(depth + 1)?),
            }
        }
    }
}
