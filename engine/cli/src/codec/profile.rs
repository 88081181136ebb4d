//! The CBOR (RFC 8949) profile of stored values, as in `bindings-js/kv/src/codec/cbor-tags.ts`.

pub(super) const TAG_DATE: u64 = 1;
pub(super) const TAG_POSITIVE_BIGINT: u64 = 2;
pub(super) const TAG_NEGATIVE_BIGINT: u64 = 3;
/// `[class name, ...arguments]`
pub(super) const TAG_OBJECT: u64 = 27;
pub(super) const TAG_SET: u64 = 258;
pub(super) const TAG_MAP: u64 = 259;
/// A string with lone surrogates, as WTF-8 bytes.
pub(super) const TAG_WTF8: u64 = 273;
/// `[source, flags]`
pub(super) const TAG_REGEXP: u64 = 21066;
/// A reference to an earlier object, by its ordinal.
pub(super) const TAG_REFERENCE: u64 = 0x4d47_5652;

/// Simple value for a missing element of a sparse array.
pub(super) const HOLE: u8 = 16;

/// Typed arrays with their tags and the size of an element in bytes. `Uint8Array` is a plain byte
/// string.
pub(super) const TYPED_ARRAYS: [(&str, u64, usize); 11] = [
    ("Uint8ClampedArray", 68, 1),
    ("Uint16Array", 69, 2),
    ("Uint32Array", 70, 4),
    ("BigUint64Array", 71, 8),
    ("Int8Array", 72, 1),
    ("Int16Array", 77, 2),
    ("Int32Array", 78, 4),
    ("BigInt64Array", 79, 8),
    ("Float16Array", 84, 2),
    ("Float32Array", 85, 4),
    ("Float64Array", 86, 8),
];

/// Buffers and views of bytes that are stored with a class name.
pub(super) const NAMED_BUFFERS: [&str; 2] = ["ArrayBuffer", "DataView"];

/// Returns the size in bytes of a view's element, or `None` if the name is not a view's.
pub(super) fn element_size(name: &str) -> Option<u64> {
    if name == "Uint8Array" || name == "DataView" {
        return Some(1);
    }
    let (_, _, size) = TYPED_ARRAYS.iter().find(|(known, _, _)| *known == name)?;
    Some(*size as u64)
}

/// Whether a buffer of `bytes` bytes can have such a view.
pub(super) fn fits(bytes: u64, size: u64, start: u64, length: u64) -> bool {
    start.is_multiple_of(size)
        && length.is_multiple_of(size)
        && start.checked_add(length).is_some_and(|end| end <= bytes)
}

/// Length of the longest array in JavaScript.
pub(super) const MAX_LENGTH: u64 = 0xffff_ffff;

pub(super) const ERROR_NAMES: [&str; 7] = [
    "Error",
    "EvalError",
    "RangeError",
    "ReferenceError",
    "SyntaxError",
    "TypeError",
    "URIError",
];

/// Deepest nesting of a value.
pub(super) const MAX_DEPTH: usize = 1000;

/// Rounds as JavaScript's `Math.round` does.
pub(super) fn round(number: f64) -> f64 {
    let floor = number.floor();
    if number - floor >= 0.5 { floor + 1.0 } else { floor }
}
