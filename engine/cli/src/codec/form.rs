//! How JSON expresses what it has no syntax for: an object with the single property `$name` stands
//! for something else, and a property of the user's that begins with `$` gets one more `$`.
//! `README.md` has the list.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use num_bigint::BigInt;
use serde_json::{Map, Value, json};

use super::date;
use super::text::Text;
use crate::failure::{Failure, Result};

/// Integers up to this one are exact in a double.
pub(crate) const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
/// Deepest nesting of JSON. A value may be nested 1,000 deep, and its JSON form several times that.
const MAX_JSON_DEPTH: usize = 4096;
/// Longest bigint in decimal digits; reading and writing them takes quadratic time.
const MAX_DECIMAL_DIGITS: usize = 2000;
const MAX_DECIMAL_BITS: u64 = 6000;

/// Parses JSON; refuses input nested too deep without recursing into it.
pub(crate) fn parse(text: &str) -> Result<Value> {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > MAX_JSON_DEPTH {
        return Err(Failure::argument(format!(
            "JSON nested more than {MAX_JSON_DEPTH} deep"
        )));
    }
    let text = with_tagged_surrogates(text);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    deserializer.disable_recursion_limit();
    let value = serde::Deserialize::deserialize(&mut deserializer);
    value
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| Failure::argument(format!("not JSON ({error}); a string is written as '\"text\"'")))
}

/// Writes strings with escapes of lone surrogates as `$utf16`: `serde_json` refuses them, and
/// `JSON.stringify` makes them. Names of properties stay as they are.
fn with_tagged_surrogates(text: &str) -> Cow<'_, str> {
    let mut tagged = String::new();
    let mut done = 0;
    let mut at = 0;
    while let Some(start) = text[at..].find('"').map(|found| at + found) {
        let Some(end) = end_of_string(text, start + 1) else {
            break;
        };
        at = end + 1;
        let units = text[start + 1..end]
            .contains("\\u")
            .then(|| units_of(&text[start + 1..end]))
            .flatten();
        if let Some(units) = units
            && !text[at..].trim_start().starts_with(':')
            && let Text::Units(units) = Text::from_units(units)
        {
            tagged.push_str(&text[done..start]);
            tagged.push_str(&tag("utf16", units).to_string());
            done = at;
        }
    }
    if done == 0 {
        return text.into();
    }
    tagged.push_str(&text[done..]);
    tagged.into()
}

/// Where the string literal ends whose contents begin at `start`: at its closing quote.
fn end_of_string(text: &str, start: usize) -> Option<usize> {
    let mut escaped = false;
    text[start..]
        .bytes()
        .position(|byte| {
            let is_end = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            is_end
        })
        .map(|found| start + found)
}

/// The code units of the contents of a string literal; `None` if it has an escape that JSON has not.
fn units_of(contents: &str) -> Option<Vec<u16>> {
    let mut units = Vec::new();
    let mut rest = contents;
    while let Some(at) = rest.find('\\') {
        units.extend(rest[..at].encode_utf16());
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = &rest[at + 2..];
        units.push(match escape {
            b'"' | b'\\' | b'/' => escape.into(),
            b'b' => 8,
            b'f' => 12,
            b'n' => 10,
            b'r' => 13,
            b't' => 9,
            b'u' => {
                let digits = rest
                    .get(..4)
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
                rest = &rest[4..];
                u16::from_str_radix(digits, 16).ok()?
            }
            _ => return None,
        });
    }
    units.extend(rest.encode_utf16());
    Some(units)
}

pub(crate) fn tag(name: &str, payload: impl Into<Value>) -> Value {
    json!({ (format!("${name}")): payload.into() })
}

/// Returns the name of a property as JSON shows it.
pub(crate) fn escape(name: &str) -> Cow<'_, str> {
    if name.starts_with('$') {
        format!("${name}").into()
    } else {
        name.into()
    }
}

/// Returns the name of a property from the form that JSON shows.
pub(crate) fn unescape(name: &str) -> Result<&str> {
    match name.strip_prefix('$') {
        None => Ok(name),
        Some(rest) if rest.starts_with('$') => Ok(rest),
        Some(_) => Err(Failure::argument(format!(
            "the property {name} has to be alone in its object, or be written as ${name} if that is its name"
        ))),
    }
}

/// What a JSON value encodes.
pub(crate) enum Form<'a> {
    Scalar(Scalar),
    Array(&'a [Value]),
    Object(&'a Map<String, Value>),
    Tagged(&'a str, &'a Value),
}

/// What both keys and values can be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Number(f64),
    Bigint(BigInt),
    /// Milliseconds; NaN for an invalid date.
    Date(f64),
    Text(Text),
    Bytes(Vec<u8>),
}

impl<'a> Form<'a> {
    pub(crate) fn of(json: &'a Value) -> Result<Self> {
        Ok(match json {
            Value::Null => Self::Scalar(Scalar::Null),
            Value::Bool(value) => Self::Scalar(Scalar::Bool(*value)),
            Value::Number(number) => Self::Scalar(Scalar::Number(number.as_f64().unwrap_or(f64::NAN))),
            Value::String(text) => Self::Scalar(Scalar::Text(Text::Unicode(text.clone()))),
            Value::Array(elements) => Self::Array(elements),
            Value::Object(properties) => match properties.iter().next() {
                Some((name, payload)) if properties.len() == 1 => match name.strip_prefix('$') {
                    Some(name) if !name.starts_with('$') => match Scalar::tagged(name, payload)? {
                        Some(scalar) => Self::Scalar(scalar),
                        None => Self::Tagged(name, payload),
                    },
                    _ => Self::Object(properties),
                },
                _ => Self::Object(properties),
            },
        })
    }

    /// Describes the form in messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Scalar(Scalar::Null) => "null".to_owned(),
            Self::Scalar(Scalar::Bool(_)) => "a boolean".to_owned(),
            Self::Scalar(Scalar::Number(_)) => "a number".to_owned(),
            Self::Scalar(Scalar::Bigint(_)) => "a bigint".to_owned(),
            Self::Scalar(Scalar::Date(_)) => "a date".to_owned(),
            Self::Scalar(Scalar::Text(_)) => "a string".to_owned(),
            Self::Scalar(Scalar::Bytes(_)) => "bytes".to_owned(),
            Self::Array(_) => "an array".to_owned(),
            Self::Object(_) => "an object".to_owned(),
            Self::Tagged(name, _) => format!("{{\"${name}\":…}}"),
        }
    }
}

pub(crate) fn bad_tag(name: &str, wanted: &str) -> Failure {
    Failure::argument(format!("{{\"${name}\":…}} has to hold {wanted}"))
}

/// Reads the bytes that a tag holds.
pub(crate) fn read_base64(name: &str, payload: &Value) -> Result<Vec<u8>> {
    let bytes = payload.as_str().and_then(|text| BASE64.decode(text).ok());
    bytes.ok_or_else(|| bad_tag(name, "a string in base64"))
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

fn read_bigint(text: &str) -> Option<BigInt> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (digits, radix) = digits.strip_prefix("0x").map_or((digits, 10), |digits| (digits, 16));
    let fits = radix == 16 || digits.len() <= MAX_DECIMAL_DIGITS;
    let clean = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = (fits && clean).then(|| BigInt::parse_bytes(digits.as_bytes(), radix))??;
    Some(if is_negative { -number } else { number })
}

fn read_date(payload: &Value) -> Option<f64> {
    match payload {
        Value::Null => Some(f64::NAN),
        Value::String(text) => date::parse(text),
        Value::Number(number) => number.as_f64().filter(|ms| date::is_time(*ms)),
        _ => None,
    }
}

fn read_units(payload: &Value) -> Option<Vec<u16>> {
    let units = payload.as_array()?.iter();
    units
        .map(|unit| unit.as_u64().and_then(|unit| u16::try_from(unit).ok()))
        .collect()
}

impl Scalar {
    fn tagged(name: &str, payload: &Value) -> Result<Option<Self>> {
        let scalar = match name {
            "bytes" => Self::Bytes(read_base64(name, payload)?),
            "bigint" => payload
                .as_str()
                .and_then(read_bigint)
                .map(Self::Bigint)
                .ok_or_else(|| {
                    bad_tag(
                        name,
                        "a string: a decimal integer of at most 2000 digits, or a hexadecimal one as \"0x…\"",
                    )
                })?,
            "date" => read_date(payload).map(Self::Date).ok_or_else(|| {
                bad_tag(
                    name,
                    "a time in ISO 8601 with its zone, milliseconds since 1970, or null for an invalid date",
                )
            })?,
            "number" => match payload.as_str() {
                Some("NaN") => Self::Number(f64::NAN),
                Some("Infinity") => Self::Number(f64::INFINITY),
                Some("-Infinity") => Self::Number(f64::NEG_INFINITY),
                _ => return Err(bad_tag(name, "\"NaN\", \"Infinity\" or \"-Infinity\"")),
            },
            "utf16" => {
                let units = read_units(payload).ok_or_else(|| bad_tag(name, "an array of integers from 0 to 65535"))?;
                Self::Text(Text::from_units(units))
            }
            _ => return Ok(None),
        };
        Ok(Some(scalar))
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => number_to_json(*number),
            Self::Bigint(number) if number.bits() <= MAX_DECIMAL_BITS => tag("bigint", number.to_string()),
            Self::Bigint(number) => {
                let sign = if number.sign() == num_bigint::Sign::Minus {
                    "-"
                } else {
                    ""
                };
                tag("bigint", format!("{sign}0x{:x}", number.magnitude()))
            }
            Self::Date(ms) if date::is_time(*ms) => tag("date", date::format(*ms)),
            // A time beyond those of a `Date` is an invalid date in JavaScript.
            Self::Date(_) => tag("date", Value::Null),
            Self::Text(Text::Unicode(text)) => Value::String(text.clone()),
            Self::Text(Text::Units(units)) => tag("utf16", units.clone()),
            Self::Bytes(bytes) => tag("bytes", to_base64(bytes)),
        }
    }
}

pub(crate) fn is_safe_integer(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() <= MAX_SAFE
}

fn number_to_json(number: f64) -> Value {
    if is_safe_integer(number) && !(number == 0.0 && number.is_sign_negative()) {
        return Value::from(number as i64);
    }
    if number.is_finite() {
        return Value::from(number);
    }
    let name = if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    tag("number", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(text: &str) -> Result<Scalar> {
        match Form::of(&parse(text)?)? {
            Form::Scalar(scalar) => Ok(scalar),
            other => panic!("{text} is {}", other.describe()),
        }
    }

    #[test]
    fn scalars_round_trip() {
        let huge = format!(r#"{{"$bigint":"-0x1{}"}}"#, "0".repeat(4000));
        for text in [
            "null",
            "true",
            "-0.0",
            "1.5",
            "9007199254740991",
            "1e300",
            r#""a\u0000é""#,
            r#"{"$number":"-Infinity"}"#,
            r#"{"$bigint":"-123456789012345678901234567890"}"#,
            r#"{"$bigint":"0"}"#,
            r#"{"$date":"1969-12-31T23:59:59.999Z"}"#,
            r#"{"$date":null}"#,
            r#"{"$bytes":"AP8="}"#,
            r#"{"$utf16":[97,55357]}"#,
            &huge,
        ] {
            let json = parse(text).unwrap();
            assert_eq!(scalar(text).unwrap().to_json(), json, "{text}");
        }
        assert_eq!(scalar(r#"{"$bigint":"-0x0f"}"#).unwrap(), Scalar::Bigint((-15).into()));
        assert_eq!(
            scalar(r#"{"$utf16":[97]}"#).unwrap(),
            Scalar::Text(Text::Unicode("a".to_owned()))
        );
    }

    #[test]
    fn escapes_of_lone_surrogates_are_read() {
        for (text, tagged) in [
            (r#""\ud83d""#, r#"{"$utf16":[55357]}"#),
            (
                r#"["a\\\"\uDC00é\n", 1, "\ud83d\ude00"]"#,
                r#"[{"$utf16":[97,92,34,56320,233,10]}, 1, "😀"]"#,
            ),
            (
                r#"{"\\ud83d": {"a": "\udc00" , "b" :"\udbff"}}"#,
                r#"{"\\ud83d": {"a": {"$utf16":[56320]} , "b" :{"$utf16":[56319]}}}"#,
            ),
        ] {
            assert_eq!(parse(text).unwrap(), parse(tagged).unwrap(), "{text}");
        }
        for text in [
            r#"{"\ud83d" : 1}"#,
            r#""\ud83""#,
            r#""\ud83d\x""#,
            r#""\ud83d"#,
            r#""\""#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            scalar(r#""\ud83d\ude00""#).unwrap(),
            Scalar::Text(Text::Unicode("😀".to_owned()))
        );
    }

    #[test]
    fn bad_tags_are_refused() {
        let long = format!(r#"{{"$bigint":"{}"}}"#, "1".repeat(2001));
        for text in [
            r#"{"$bigint":1}"#,
            r#"{"$bigint":""}"#,
            r#"{"$bigint":"--1"}"#,
            r#"{"$bigint":"1_0"}"#,
            r#"{"$bigint":"+1"}"#,
            r#"{"$bytes":"?"}"#,
            r#"{"$bytes":[]}"#,
            r#"{"$date":"x"}"#,
            r#"{"$date":0.5}"#,
            r#"{"$number":"1"}"#,
            r#"{"$utf16":[65536]}"#,
            r#"{"$utf16":[-1]}"#,
            &long,
        ] {
            assert!(Form::of(&parse(text).unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_before_it_is_read() {
        assert!(parse(&"[".repeat(1 << 20)).is_err());
        assert!(parse(r#""[[[\"[[""#).is_ok());
        assert!(parse("[] []").is_err());
    }
}
