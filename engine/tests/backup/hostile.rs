//! Streams with valid checksums whose content no backup has.

use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{AdvancedOptions, Database, Durability, Error, Options, restore};
use proptest::prelude::*;

use super::{content_of, empty, go_on, small};

const DATABASE_ID: [u8; 16] = [9; 16];

/// Wraps content in a stream, as the documentation describes it.
fn stream(header: &Header, content: &[u8], frame_bytes: usize) -> Vec<u8> {
    let frames: Vec<_> = content.chunks(frame_bytes).map(Frame::plain).collect();
    let totals = [frames.len() as u64, content.len() as u64, header.records];
    stream_of(header, &frames, totals)
}

/// A stream of these frames, with these totals at its end.
fn stream_of(header: &Header, frames: &[Frame<'_>], totals: [u64; 3]) -> Vec<u8> {
    let mut bytes = b"MANGRBAK\x01\0\0\0".to_vec();
    bytes.extend_from_slice(&512_u32.to_le_bytes());
    bytes.extend_from_slice(&DATABASE_ID);
    for field in [header.version, header.base, header.records] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&header.collections.to_le_bytes());
    let mut crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    let end = totals.map(u64::to_le_bytes).concat();
    let frames = frames.iter().map(|frame| (1, frame));
    for (kind, frame) in frames.chain([(2, &Frame::plain(&end))]) {
        let stored_len = (frame.stored.len() as u32).to_le_bytes();
        let front = [
            &[kind, frame.codec, 0, 0][..],
            &stored_len,
            &frame.raw_len.to_le_bytes(),
        ]
        .concat();
        crc = crc32fast::hash(&[&crc.to_le_bytes()[..], &front, frame.stored].concat());
        bytes.extend_from_slice(&front);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(frame.stored);
    }
    bytes
}

struct Frame<'a> {
    codec: u8,
    raw_len: u32,
    stored: &'a [u8],
}

impl<'a> Frame<'a> {
    fn plain(stored: &'a [u8]) -> Self {
        Self {
            codec: 0,
            raw_len: stored.len() as u32,
            stored,
        }
    }
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

#[test]
fn totals_that_are_not_those_of_the_data_are_refused() {
    let frames = [Frame::plain(GOOD)];
    let totals = [1, GOOD.len() as u64, 2];
    assert!(restored(&stream_of(&header(2, 2), &frames, totals)).is_ok());
    for (part, _) in totals.iter().enumerate() {
        for wrong in [totals[part] - 1, totals[part] + 1] {
            let mut totals = totals;
            totals[part] = wrong;
            let error = restored(&stream_of(&header(2, 2), &frames, totals)).expect_err("the totals differ");
            assert!(matches!(error, Error::CorruptBackup(_)), "{totals:?}: {error}");
        }
    }
}

/// What a sealed frame has instead of the nonce and the tag is no content.
#[test]
fn sealed_frames_of_a_plain_stream_are_refused() {
    let content = [&b"\x01c\0\0\x01\x01k\x78"[..], &[b'v'; 60]].concat();
    let totals = [1, content.len() as u64, 1];
    let plain = Frame::plain(&content);
    let sealed = Frame {
        codec: 2,
        raw_len: plain.raw_len - 40,
        ..plain
    };
    assert!(restored(&stream_of(&header(1, 1), &[plain], totals)).is_ok());
    let error = restored(&stream_of(&header(1, 1), &[sealed], totals)).expect_err("the stream has no key");
    assert!(matches!(error, Error::CorruptBackup(_)), "{error}");
}

#[test]
fn commits_with_a_gap_between_them_are_refused() {
    let options = Options {
        advanced: AdvancedOptions {
            database_id: Some(u128::from_le_bytes(DATABASE_ID)),
            ..small().advanced
        },
        ..small()
    };
    let database = Database::open(Arc::new(MemoryStorage::new()), options).expect("memory works");
    let done = database.set("c", b"k", b"v", Durability::Strict);
    done.expect("memory works");
    let before = content_of(&database.snapshot());
    let incremental = |versions: &[u8]| {
        let commit = |version: &u8| [&[*version, 7][..], b"\x01\x01c\x01k", &[1, *version]].concat();
        let content: Vec<u8> = versions.iter().flat_map(commit).collect();
        let header = Header {
            version: versions[versions.len() - 1].into(),
            base: 1,
            ..header(0, 0)
        };
        let totals = [1, content.len() as u64, versions.len() as u64];
        let stream = stream_of(&header, &[Frame::plain(&content)], totals);
        database.restore_commits(&mut &stream[..], &mut go_on)
    };
    for versions in [&[3][..], &[2, 4], &[3, 4]] {
        let error = incremental(versions).expect_err("a commit is missing");
        assert!(matches!(error, Error::CorruptBackup(_)), "{versions:?}: {error}");
        assert_eq!(database.version(), 1, "{versions:?}");
        assert_eq!(content_of(&database.snapshot()), before, "{versions:?}");
    }
    incremental(&[2, 3]).expect("none is missing");
    assert_eq!(database.version(), 3);
    let tree = database.snapshot().collection("c").expect("it is there");
    assert_eq!(tree.get(b"k").expect("memory works"), Some(vec![3]));
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
