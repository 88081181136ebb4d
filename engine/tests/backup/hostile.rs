//! Streams with valid checksums whose content no backup has.

use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{Error, restore};
use proptest::prelude::*;

use super::{empty, go_on, small};

/// Wraps content in a stream, as the documentation describes it.
fn stream(header: &Header, content: &[u8], frame_bytes: usize) -> Vec<u8> {
    let mut bytes = b"MANGRBAK\x01\0\0\0".to_vec();
    bytes.extend_from_slice(&512_u32.to_le_bytes());
    bytes.extend_from_slice(&[9; 16]);
    for field in [header.version, header.base, header.records] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&header.collections.to_le_bytes());
    let mut crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    let end = [
        (content.len().div_ceil(frame_bytes) as u64).to_le_bytes(),
        (content.len() as u64).to_le_bytes(),
        header.records.to_le_bytes(),
    ]
    .concat();
    let frames = content.chunks(frame_bytes).map(|data| (1, data));
    for (kind, data) in frames.chain([(2, &end[..])]) {
        let len = (data.len() as u32).to_le_bytes();
        let frame = [&[kind, 0, 0, 0][..], &len, &len].concat();
        crc = crc32fast::hash(&[&crc.to_le_bytes()[..], &frame, data].concat());
        bytes.extend_from_slice(&frame);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(data);
    }
    bytes
}

#[derive(Clone)]
struct Header {
    version: u64,
    base: u64,
    records: u64,
    collections: u32,
}

fn header(records: u64, collections: u32) -> Header {
    Header {
        version: 4,
        base: 0,
        records,
        collections,
    }
}

fn restored(stream: &[u8]) -> Result<(), Error> {
    let target = MemoryStorage::new();
    let result = restore(&mut &stream[..], Arc::new(target.clone()), small(), &mut go_on);
    assert_eq!(result.is_err(), empty(&target));
    result.map(drop)
}

const GOOD: &[u8] = b"\x01c\0\0\x02\0\0\x01k\x03\x07v\x01d\x03any\x04json\0";

#[test]
fn the_format_is_the_documented_one() {
    for frame_bytes in [1, 3, 1000] {
        assert!(restored(&stream(&header(2, 2), GOOD, frame_bytes)).is_ok());
    }
}

#[test]
fn content_that_no_backup_has_is_refused() {
    let long_name = [&b"\x80\x02"[..], &[b'n'; 256], b"\0\0\0"].concat();
    let long_codec = [&b"\x01c\x41"[..], &[b'n'; 65], b"\0\0"].concat();
    // The maximum key length, but a record that expires must leave room for its hint.
    let long_key = [&b"\x01c\0\0\x01\x75"[..], &[b'k'; 117], b"\x01\x07"].concat();
    let cases: [(&str, Header, &[u8]); 18] = [
        ("fewer records", header(3, 2), GOOD),
        ("more records", header(1, 2), GOOD),
        ("fewer collections", header(2, 3), GOOD),
        ("more collections", header(2, 1), GOOD),
        (
            "a collection in version 0",
            Header {
                version: 0,
                ..header(2, 2)
            },
            GOOD,
        ),
        ("the same collection twice", header(0, 2), b"\x01c\0\0\0\x01c\0\0\0"),
        ("collections out of order", header(0, 2), b"\x01d\0\0\0\x01c\0\0\0"),
        ("the same key twice", header(2, 1), b"\x01c\0\0\x02\x01k\0\x01k\0"),
        ("keys out of order", header(2, 1), b"\x01c\0\0\x02\x01l\0\x01k\0"),
        ("a name that is no text", header(0, 1), b"\x01\xFF\0\0\0"),
        ("a codec that is no text", header(0, 1), b"\x01c\x01\xFF\0\0"),
        ("a long name", header(0, 1), &long_name),
        ("a long codec", header(0, 1), &long_codec),
        ("a long key", header(1, 1), b"\x01c\0\0\x01\xFF\xFF\xFF\xFF\x0F"),
        ("a long value", header(1, 1), b"\x01c\0\0\x01\x01k\x80\x80\x80\x80\x10"),
        ("an expiry that is none", header(1, 1), b"\x01c\0\0\x01\x01k\x01\0"),
        ("a long key that expires", header(1, 1), &long_key),
        (
            "an endless number",
            header(1, 1),
            b"\x01c\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
        ),
    ];
    for (what, header, content) in cases {
        let error = restored(&stream(&header, content, 1000)).expect_err(what);
        assert!(matches!(error, Error::CorruptBackup(_)), "{what}: {error}");
    }
    // A value may have two gigabytes; a length that claims so must not allocate them.
    let error = restored(&stream(&header(1, 1), b"\x01c\0\0\x01\x01k\xFE\xFF\xFF\xFF\x0Fv", 1000)).expect_err("short");
    assert!(matches!(error, Error::CorruptBackup(_)), "{error}");
}

#[test]
fn an_incremental_backup_is_not_restored_alone() {
    let incremental = Header {
        base: 3,
        ..header(0, 0)
    };
    let error = restored(&stream(&incremental, b"\x04\0", 1000)).expect_err("it needs a base");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
}

proptest! {
    #[test]
    fn any_content_is_restored_or_refused(
        mut content in prop::collection::vec(any::<u8>(), 0..40),
        good in 0..=GOOD.len(),
        records in 0_u64..4,
        collections in 0_u32..4,
        frame_bytes in 1_usize..50,
    ) {
        let content = [&GOOD[..good], &std::mem::take(&mut content)].concat();
        match restored(&stream(&header(records, collections), &content, frame_bytes)) {
            Ok(()) | Err(Error::CorruptBackup(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn any_bytes_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let front = b"MANGRBAK";
        let len = bytes.len().min(front.len());
        bytes[..len].copy_from_slice(&front[..len]);
        prop_assert!(restored(&bytes).is_err());
    }
}
