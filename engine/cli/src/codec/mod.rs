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

/// Codecs of a collection created without naming any, as in the JavaScript package.
pub(crate) const DEFAULT_CODECS: (&str, &str) = ("any", "structured");

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of every kind.
    const VALUE: &str = r#"[1,-1,1.5,1e300,null,true,"text",{"$utf16":[55296]},{"$bigint":"-300"},{"$date":"2020-01-01"},{"a":{"$ref":0}},
        {"$undefined":true},{"$hole":true},{"$bytes":"AAE="},{"$map":[[1,{}]]},{"$set":[2]},{"$regexp":["a","g"]},{"$boxed":["Number",1]},
        {"$buffer":["Int16Array","AAE="]},{"$error":{"name":"Error","message":"m","cause":1}},{"$object":[["a",1]]},
        {"$array":[[1,{"$hole":true}],{"index":1,"b":[{"$ref":0}]}]},{"$array":[4000000000,{"5":1}]},{"$array":[[],{"$object":[[{"$utf16":[55296]},1]]}]},
        [{"$buffer":["Uint16Array","AAECAw==",2,2]},{"$buffer":["ArrayBuffer",17]},{"$buffer":["DataView",17,1,3]}]]"#;
    const KEY: &str = r#"[null,false,1.5,{"$bigint":"300"},{"$date":0},"a\u0000é",{"$bytes":"AAE="},[[]]]"#;

    /// Calls `check` with every change of one byte of `bytes`, and with every shorter beginning.
    fn mutate(bytes: &[u8], check: impl Fn(&[u8])) {
        for at in 0..bytes.len() {
            check(&bytes[..at]);
            let mut mutated = bytes.to_vec();
            for byte in 0..=u8::MAX {
                mutated[at] = byte;
                check(&mutated);
            }
        }
    }

    #[test]
    fn malformed_values_are_refused_and_others_stay_as_they_are() {
        let codec = ValueCodec::Structured;
        mutate(&codec.encode(VALUE).unwrap(), |bytes| {
            if let Ok(shown) = codec.decode(bytes)
                && let Ok(again) = codec.encode(&shown)
            {
                assert_eq!(codec.decode(&again).unwrap(), shown);
            }
        });
        for endless in [[0x81], [0xc2], [0xa1]] {
            assert!(codec.decode(&endless.repeat(1 << 20)).is_err());
        }
        for length in [
            &b"\x9b\0\0\0\xff\0\0\0\0"[..],
            b"\xbb\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"\x5b\xff",
            b"\x9f\xff",
            b"\xf9\x3c\0",
        ] {
            assert!(codec.decode(length).is_err());
        }
    }

    #[test]
    fn malformed_keys_are_refused_and_others_stay_as_they_are() {
        let codec = KeyCodec::Any;
        mutate(&codec.encode(&parse(KEY).unwrap()).unwrap(), |bytes| {
            if let Ok(shown) = codec.decode(bytes)
                && let Ok(again) = codec.encode(&shown)
            {
                assert_eq!(codec.decode(&again).unwrap(), shown);
            }
        });
        assert!(codec.decode(&[0x50].repeat(1 << 16)).is_err());
    }
}
