//! Parts of values: that they are what the whole value has at these places, and that only the
//! blocks that overlap them are read.

use std::ops::Range;
use std::sync::Arc;

use mangrove_engine::storage::{MemoryStorage, Storage};
use mangrove_engine::testing::sim::{SimRng, SimStorage};
use mangrove_engine::{Compression, Database, Durability, Error, Isolation, Options, ValuePart};

/// Bytes of a chunk's content: with its header it fills 1 MiB.
pub(crate) const CHUNK_BYTES: usize = (1 << 20) - 32;

/// Bytes that differ from place to place, and that compress to almost nothing.
pub(crate) fn content(seed: u8, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let run = SimRng::new(u64::from(seed) << 32 | (bytes.len() / 4096) as u64).next_u64() as u8;
        bytes.resize((bytes.len() + 4096).min(len), run);
    }
    bytes
}

fn options() -> Options {
    Options {
        compression: Compression::None,
        cache_bytes: 1 << 20,
        ..Options::default()
    }
}

fn slice(value: &[u8], range: &Range<u64>) -> Vec<u8> {
    let len = value.len() as u64;
    let end = range.end.min(len);
    value[range.start.min(end) as usize..end as usize].to_vec()
}

fn check(part: Option<ValuePart>, value: &[u8], version: u64, range: &Range<u64>) {
    let part = part.expect("the record exists");
    assert!(part.bytes == slice(value, range), "{range:?} of {}", value.len());
    assert_eq!(part.value_len, value.len() as u64);
    assert_eq!(part.version, version, "{range:?}");
}

#[test]
fn a_part_is_what_the_value_has_there() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    let lengths = [
        0,
        1,
        100,
        5000,
        CHUNK_BYTES - 1,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        3 * CHUNK_BYTES,
        3 * CHUNK_BYTES + 77,
    ];
    for merged in [false, true] {
        let mut rng = SimRng::new(5);
        for (seed, &len) in lengths.iter().enumerate() {
            let value = content(seed as u8, len);
            let info = database
                .set("c", b"key", &value, Durability::None)
                .expect("memory works");
            if merged {
                database.checkpoint().expect("memory works");
            }
            let tree = database.snapshot().collection("c").expect("it exists");
            let mut open = database.transaction(Isolation::Serializable).expect("memory works");
            let size = len as u64;
            let edge = CHUNK_BYTES as u64;
            let mut ranges = vec![
                0..0,
                0..u64::MAX,
                0..size,
                size..u64::MAX,
                u64::MAX..u64::MAX,
                edge - 1..edge + 1,
                edge..edge,
                edge..2 * edge,
                size.saturating_sub(1)..size,
            ];
            ranges.extend((0..20).map(|_| {
                let start = rng.below(size + 10);
                start..start + rng.below(size + 10)
            }));
            // A range whose start is after its end is empty.
            ranges.push(Range { start: size, end: 0 });
            for range in &ranges {
                let part = tree.get_range(b"key", range.clone()).expect("memory works");
                check(part, &value, info.version, range);
                let part = open.get_range("c", b"key", range.clone()).expect("memory works");
                check(part, &value, info.version, range);
            }
            open.set("c", b"key", &value).expect("memory works");
            for range in &ranges {
                let part = open.get_range("c", b"key", range.clone()).expect("memory works");
                check(part, &value, 0, range);
            }
            let mut writing = database.begin().expect("memory works");
            writing.set("c", b"key", &value).expect("memory works");
            for range in &ranges {
                let part = writing.get_range("c", b"key", range.clone()).expect("memory works");
                check(part, &value, info.version + 1, range);
            }
        }
    }
}

#[test]
fn records_that_are_not_there_have_no_parts() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    database.set("c", b"a", b"1", Durability::None).expect("memory works");
    let tree = database.snapshot().collection("c").expect("it exists");
    assert_eq!(tree.get_range(b"b", 0..9).expect("memory works"), None);
    let mut open = database.transaction(Isolation::Serializable).expect("memory works");
    assert_eq!(open.get_range("none", b"a", 0..9).expect("memory works"), None);
    open.delete("c", b"a").expect("memory works");
    assert_eq!(open.get_range("c", b"a", 0..9).expect("memory works"), None);
    let mut writing = database.begin().expect("memory works");
    writing.put_until("c", b"late", b"2", Some(1)).expect("memory works");
    assert_eq!(writing.get_range("c", b"late", 0..9).expect("memory works"), None);
    assert_eq!(writing.get_range("none", b"a", 0..9).expect("memory works"), None);
}

/// A part counts as a read of its record: a transaction that read one conflicts with a later write.
#[test]
fn a_part_is_a_read_of_its_record() {
    let database = Database::open(Arc::new(MemoryStorage::new()), options()).expect("memory works");
    database.set("c", b"a", b"123", Durability::None).expect("memory works");
    let mut open = database.transaction(Isolation::Serializable).expect("memory works");
    open.get_range("c", b"a", 0..1).expect("memory works");
    open.set("c", b"b", b"").expect("memory works");
    database.set("c", b"a", b"124", Durability::None).expect("memory works");
    let refused = open.commit(Durability::None);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
}

/// Damage in a block of a value matters only to parts that overlap it.
#[test]
fn only_the_blocks_of_a_part_are_read() {
    let storage = SimStorage::new();
    let database = Database::open(Arc::new(storage.clone()), options()).expect("it works");
    let value = content(1, 4 * CHUNK_BYTES);
    database.set("c", b"key", &value, Durability::None).expect("it works");
    database.close().expect("it works");
    let chunk = |index: usize| (index * CHUNK_BYTES) as u64..((index + 1) * CHUNK_BYTES) as u64;
    let mut image = storage.files();
    let data = image.get_mut("data").expect("it is there");
    // The third chunk holds this run of bytes.
    let wanted = &value[2 * CHUNK_BYTES + 5000..2 * CHUNK_BYTES + 13_000];
    let at = data.windows(wanted.len()).position(|window| window == wanted);
    data[at.expect("it is stored as it is") + 100] ^= 1;
    let damaged: Arc<dyn Storage> = Arc::new(SimStorage::from_files(image));
    let database = Database::open(damaged, options()).expect("the trees are intact");
    let tree = database.snapshot().collection("c").expect("it exists");
    for index in [0, 1, 3] {
        let part = tree.get_range(b"key", chunk(index)).expect("these are intact");
        check(part, &value, 1, &chunk(index));
    }
    for range in [chunk(2), 0..u64::MAX, chunk(2).end - 1..chunk(2).end] {
        let refused = tree.get_range(b"key", range);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
    let part = tree.get_range(b"key", 7..7).expect("nothing of the value is read");
    assert_eq!(part.map(|part| part.value_len), Some(value.len() as u64));
}
