//! Damaged, truncated and foreign streams.

use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{Database, Durability, Error, restore};

use super::{backed_up, empty, go_on, noise, small};

/// Returns a stream of two frames, the first compressed.
fn stream() -> Vec<u8> {
    let database = Database::open(Arc::new(MemoryStorage::new()), small()).expect("memory works");
    let mut transaction = database.begin().expect("it can be written");
    transaction.set_codecs("c", "any", "json").expect("it is new");
    for key in 0..20_u8 {
        transaction.set("c", &[key], &[key; 20]).expect("memory works");
    }
    let large = [vec![0; 262_000], noise(1, 400)].concat();
    transaction.set("d", b"", &large).expect("memory works");
    transaction.commit(Durability::Strict).expect("memory works");
    backed_up(&database.snapshot())
}

#[track_caller]
fn refused(mut stream: &[u8], context: &str) -> Error {
    let target = MemoryStorage::new();
    let result = restore(&mut stream, Arc::new(target.clone()), small(), &mut go_on);
    assert!(empty(&target), "{context}: the target has files");
    result.expect_err(context)
}

#[test]
fn every_flipped_byte_is_found() {
    let whole = stream();
    assert!(whole.len() < 4000, "{}", whole.len());
    for at in 0..whole.len() {
        for bits in [0xFF, 1 << (at % 8)] {
            let mut damaged = whole.clone();
            damaged[at] ^= bits;
            let context = format!("byte {at} ^ {bits:x}");
            match refused(&damaged, &context) {
                Error::NotADatabase { .. } => assert!(at < 8, "{context}"),
                Error::CorruptBackup(damage) => {
                    let offset = damage.offset;
                    let end = whole.len() as u64;
                    assert!(offset <= at as u64 || offset == end, "{context}: reported at {offset}");
                }
                other => panic!("{context}: {other}"),
            }
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let whole = stream();
    for len in 0..whole.len() {
        let error = refused(&whole[..len], &format!("{len} bytes"));
        match &error {
            Error::CorruptBackup(damage) => assert_eq!(damage.offset, len as u64),
            other => panic!("{len}: {other}"),
        }
        assert_eq!(error.code(), "KV_CORRUPT");
    }
}

#[test]
fn bytes_after_the_end_are_found() {
    let whole = stream();
    for tail in [&b"\0"[..], &whole[..]] {
        let error = refused(&[&whole[..], tail].concat(), "a tail");
        assert!(matches!(error, Error::CorruptBackup(damage) if damage.offset == whole.len() as u64));
    }
}

#[test]
fn foreign_streams_are_not_ours() {
    let storage = MemoryStorage::new();
    Database::open(Arc::new(storage.clone()), small()).expect("memory works");
    let data = storage.files()["data"].clone();
    for foreign in [&data[..], b"x", b"MANGROVE", b"PK\x03\x04 and so on", &[0; 1000]] {
        let error = refused(foreign, "foreign");
        assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    }
}
