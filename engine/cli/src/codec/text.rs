//! Strings of JavaScript: UTF-16 code units, possibly with lone surrogates.

/// A JavaScript string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// A string that is valid Unicode.
    Unicode(String),
    /// A string with lone surrogates.
    Units(Vec<u16>),
}

impl Text {
    pub(crate) fn from_units(units: Vec<u16>) -> Self {
        match String::from_utf16(&units) {
            Ok(text) => Self::Unicode(text),
            Err(_) => Self::Units(units),
        }
    }

    fn units(&self) -> Vec<u16> {
        match self {
            Self::Unicode(text) => text.encode_utf16().collect(),
            Self::Units(units) => units.clone(),
        }
    }

    /// Encodes each code unit as UTF-8 would write that number, which sorts as JavaScript's `<`.
    pub(crate) fn to_unit_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Unicode(text) if text.is_ascii() => bytes.extend_from_slice(text.as_bytes()),
            _ => self
                .units()
                .into_iter()
                .for_each(|unit| put_code(&mut bytes, unit.into())),
        }
        bytes
    }

    /// Inverts [`to_unit_bytes`](Self::to_unit_bytes).
    pub(crate) fn from_unit_bytes(bytes: &[u8]) -> Option<Self> {
        let mut units = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            units.push(u16::try_from(take_code(&mut rest)?).ok()?);
        }
        Some(Self::from_units(units))
    }

    /// Encodes UTF-8 in which lone surrogates are written like any other code point.
    pub(crate) fn to_wtf8(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for code in char::decode_utf16(self.units()) {
            put_code(
                &mut bytes,
                code.map_or_else(|lone| lone.unpaired_surrogate().into(), u32::from),
            );
        }
        bytes
    }

    /// Inverts [`to_wtf8`](Self::to_wtf8).
    pub(crate) fn from_wtf8(bytes: &[u8]) -> Option<Self> {
        let mut units = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            let code = take_code(&mut rest)?;
            match char::from_u32(code) {
                Some(character) => units.extend_from_slice(character.encode_utf16(&mut [0; 2])),
                None => units.push(u16::try_from(code).ok()?),
            }
        }
        Some(Self::from_units(units))
    }
}

/// Writes a number below 2^21 as UTF-8 does.
fn put_code(bytes: &mut Vec<u8>, code: u32) {
    let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
    match code {
        0..0x80 => bytes.push(code as u8),
        0x80..0x800 => bytes.extend([0xc0 | (code >> 6) as u8, tail(0)]),
        0x800..0x1_0000 => bytes.extend([0xe0 | (code >> 12) as u8, tail(6), tail(0)]),
        _ => bytes.extend([0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}

fn take_code(rest: &mut &[u8]) -> Option<u32> {
    let (first, mut tail) = rest.split_first()?;
    let more = match first {
        0..0x80 => 0,
        0xc0..0xe0 => 1,
        0xe0..0xf0 => 2,
        0xf0..0xf8 => 3,
        _ => return None,
    };
    let mut code = u32::from(if more == 0 { *first } else { first & (0x3f >> more) });
    for _ in 0..more {
        let (byte, after) = tail.split_first()?;
        code = code << 6 | u32::from(byte & 0x3f);
        tail = after;
        if byte & 0xc0 != 0x80 {
            return None;
        }
    }
    *rest = tail;
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_are_lossless() {
        let lone = Text::Units(vec![0x61, 0xd83d, 0xd83d, 0xde00, 0xdc00]);
        let texts = ["", "a\0b", "é€", "日本", "😀"].map(|text| Text::Unicode(text.to_owned()));
        for text in texts.into_iter().chain([lone.clone()]) {
            assert_eq!(Text::from_unit_bytes(&text.to_unit_bytes()), Some(text.clone()));
            assert_eq!(Text::from_wtf8(&text.to_wtf8()), Some(text));
        }
        assert_eq!(
            Text::Unicode("😀".to_owned()).to_unit_bytes(),
            [0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80]
        );
        assert_eq!(lone.to_wtf8(), b"a\xed\xa0\xbd\xf0\x9f\x98\x80\xed\xb0\x80");
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for bytes in [
            &b"\x80"[..],
            b"\xc3",
            b"\xe2\x82",
            b"\xc3\x28",
            b"\xff",
            b"\xf0\x9f\x98\x80",
        ] {
            assert_eq!(Text::from_unit_bytes(bytes), None);
        }
        assert_eq!(Text::from_wtf8(b"\xf7\xbf\xbf\xbf"), None);
    }
}
