//! Files whose checksums are all right and which no engine has written. What one part of them states
//! about another is compared with it.

use std::ops::Range;
use std::sync::Arc;

use mangrove_engine::storage::MemoryStorage;
use mangrove_engine::{AdvancedOptions, Compression, Database, Durability, Error, Options};
use twox_hash::XxHash64;

const UNIT_BYTES: usize = 512;
/// Of the file, before the first unit of data.
const FRONT_BYTES: usize = 8192;
/// Before a block's payload.
const HEADER_BYTES: usize = 32;
const LEAF: u8 = 1;
const INNER: u8 = 2;
/// Longer ones are out of line.
const VALUE_BYTES: usize = 30;

/// Without a log there is nothing to fall back on.
fn options() -> Options {
    Options {
        cache_bytes: 64 << 10,
        compression: Compression::None,
        advanced: AdvancedOptions {
            unit_bytes: UNIT_BYTES as u32,
            node_bytes: 512,
            log_bytes: Some(0),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Decodes all numbers of a text.
fn varints(bytes: &[u8]) -> Vec<u64> {
    let (mut numbers, mut next, mut shift) = (Vec::new(), 0, 0);
    for byte in bytes {
        next |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            numbers.push(next);
            (next, shift) = (0, 0);
        }
    }
    numbers
}

/// Places of a text.
fn find(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let all = bytes.windows(wanted.len()).enumerate();
    all.filter(|(_, window)| *window == wanted).map(|(at, _)| at).collect()
}

/// A data file to be changed, read by the documentation of its format.
#[derive(Clone)]
struct Forged(Vec<u8>);

/// The lists of a free map: extents that are free, and that are kept for the checkpoint before.
type FreeMap = [Vec<Range<u64>>; 2];

type Change<'a, T> = &'a dyn Fn(&mut T);

impl Forged {
    /// A closed database's file after this work.
    fn after(work: impl FnOnce(&Database)) -> Self {
        let storage = MemoryStorage::new();
        let database = Database::open(Arc::new(storage.clone()), options()).expect("memory works");
        work(&database);
        database.close().expect("memory works");
        Self(storage.files()["data"].clone())
    }

    fn open(&self) -> Result<Database, Error> {
        let files = [("data".to_owned(), self.0.clone())].into();
        Database::open(Arc::new(MemoryStorage::from_files(files)), options())
    }

    /// Where the blocks stand, old ones included.
    fn blocks(&self) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = FRONT_BYTES;
        while at + HEADER_BYTES <= self.0.len() {
            let mut len = UNIT_BYTES;
            if self.0[at..].starts_with(b"MGBK") {
                len = (HEADER_BYTES + word(&self.0, at + 8) as usize).next_multiple_of(UNIT_BYTES);
                found.push(at..at + len);
            }
            at += len;
        }
        found
    }

    fn is_of_catalog(&self, block: &Range<usize>) -> bool {
        word(&self.0, block.start + 24) == 0
    }

    /// Nodes of this kind in collections.
    fn nodes(&self, kind: u8) -> Vec<Range<usize>> {
        let mut blocks = self.blocks();
        blocks.retain(|block| self.0[block.start + 4] == kind && !self.is_of_catalog(block));
        blocks
    }

    fn units(block: &Range<usize>) -> Range<u64> {
        (block.start / UNIT_BYTES) as u64..(block.end / UNIT_BYTES) as u64
    }

    /// What references to a block begin with: its place and its checksum.
    fn reference(&self, block: &Range<usize>) -> Vec<u8> {
        let units = Self::units(block);
        let place = units.start | (units.end - units.start) << 48;
        [&place.to_le_bytes()[..], &self.0[block.start + 28..block.start + 32]].concat()
    }

    /// Writes the checksum that a changed block now has to it, and to all references to it.
    fn sign(&mut self, block: &Range<usize>) {
        let before = self.reference(block);
        let stored = block.start + HEADER_BYTES..block.start + HEADER_BYTES + word(&self.0, block.start + 8) as usize;
        let seed = XxHash64::oneshot(0, &self.0[block.start..block.start + 28]);
        let checksum = XxHash64::oneshot(seed, &self.0[stored]) as u32;
        self.0[block.start + 28..block.start + 32].copy_from_slice(&checksum.to_le_bytes());
        let raw_len = word(&self.0, block.start + 12);
        for at in find(&self.0, &before) {
            self.0[at + 8..at + 12].copy_from_slice(&checksum.to_le_bytes());
            self.0[at + 12..at + 16].copy_from_slice(&raw_len.to_le_bytes());
            if at < FRONT_BYTES {
                self.sign_superblock(at / 2048 * 2048);
            } else if let Some(parent) = self.blocks().into_iter().find(|parent| parent.contains(&at)) {
                self.sign(&parent);
            }
        }
    }

    fn sign_superblock(&mut self, at: usize) {
        let crc = crc32fast::hash(&self.0[at..at + 508]);
        self.0[at + 508..at + 512].copy_from_slice(&crc.to_le_bytes());
    }

    /// The block of the newest free map.
    fn free_map_block(&self) -> Range<usize> {
        let slot = if number(&self.0, 32) > number(&self.0, 4096 + 32) {
            0
        } else {
            4096
        };
        let reference = &self.0[slot + 72..slot + 84];
        let mut blocks = self.blocks().into_iter();
        let found = blocks.find(|block| self.reference(block) == reference);
        found.expect("there is free space")
    }

    fn free_map(&self) -> FreeMap {
        let at = self.free_map_block().start;
        let numbers = varints(&self.0[at + HEADER_BYTES..at + HEADER_BYTES + word(&self.0, at + 8) as usize]);
        let mut rest = &numbers[..];
        [(); 2].map(|()| {
            let (list, after) = rest[1..].split_at(2 * rest[0] as usize);
            rest = after;
            let mut end = 0;
            let extent = |pair: &[u64]| {
                let start = end + pair[0];
                end = start + pair[1];
                start..end
            };
            list.chunks(2).map(extent).collect()
        })
    }

    fn set_free_map(&mut self, lists: &mut FreeMap) {
        let mut payload = Vec::new();
        for list in lists {
            list.sort_by_key(|extent| extent.start);
            payload.extend(varint(list.len() as u64));
            let mut end = 0;
            for extent in list {
                payload.extend(varint(extent.start - end));
                payload.extend(varint(extent.end - extent.start));
                end = extent.end;
            }
        }
        let block = self.free_map_block();
        assert!(payload.len() <= UNIT_BYTES - HEADER_BYTES && block.len() == UNIT_BYTES);
        let len = (payload.len() as u32).to_le_bytes();
        payload.resize(UNIT_BYTES - HEADER_BYTES, 0);
        self.0[block.start + 8..block.start + 12].copy_from_slice(&len);
        self.0[block.start + 12..block.start + 16].copy_from_slice(&len);
        self.0[block.start + HEADER_BYTES..block.end].copy_from_slice(&payload);
        self.sign(&block);
    }

    /// Where a node's reference to a child stands.
    fn child(&self, node: &Range<usize>, index: usize) -> Range<usize> {
        let page = node.start + HEADER_BYTES;
        let end = page + word(&self.0, node.start + 8) as usize;
        let slot = word(&self.0, page + 24 + 8 * index);
        let at = end - (slot & 0xFFFF) as usize + (slot >> 16) as usize;
        at..at + 24
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn fill(database: &Database, keys: Range<u32>) {
    let mut transaction = database.begin().expect("it is open");
    for number in keys {
        let stored = transaction.set("c", &key(number), &[number as u8; VALUE_BYTES]);
        stored.expect("memory works");
    }
    transaction.commit(Durability::Strict).expect("memory works");
}

/// A tree of two levels, in a file with free and kept extents.
fn grown() -> Forged {
    Forged::after(|database| {
        fill(database, 0..60);
        for round in 0..6 {
            fill(database, round * 10..round * 10 + 1);
        }
    })
}

/// Verifies in one go and in slices; both have to find the same.
fn problems(database: &Database) -> Vec<Error> {
    let whole = database.verify().expect("it can look");
    let mut slices = database.snapshot().verification();
    let slices = loop {
        if let Some(report) = slices.advance(1).expect("nobody writes") {
            break report;
        }
    };
    assert_eq!(slices.problems, whole.problems);
    whole.problems
}

#[track_caller]
fn assert_names(error: &Error, what: &str) {
    let is_named = matches!(error, Error::Corrupt(_)) && error.to_string().contains(what);
    assert!(is_named, "{error} should say: {what}");
}

#[test]
fn signing_a_file_as_it_is_changes_nothing() {
    let file = grown();
    let mut signed = file.clone();
    signed.set_free_map(&mut file.free_map());
    for block in file.blocks() {
        signed.sign(&block);
    }
    assert!(signed.0 == file.0);
    assert_eq!(problems(&signed.open().expect("it is whole")), []);
}

/// What is kept for the checkpoint before would be overwritten.
#[test]
fn an_extent_that_is_both_free_and_kept_is_refused() {
    let mut file = grown();
    let mut lists = file.free_map();
    let kept = lists[1].first().expect("the last checkpoint replaced blocks").clone();
    lists[0].push(kept);
    file.set_free_map(&mut lists);
    assert_names(&file.open().expect_err("it is in both lists"), "both lists");
}

#[test]
fn units_that_are_used_twice_or_not_at_all_are_found() {
    let file = grown();
    let free = file.free_map();
    let is_used = |units: &Range<u64>| !free.iter().flatten().any(|extent| extent.contains(&units.start));
    let leaves = file.nodes(LEAF);
    let used = leaves
        .iter()
        .map(Forged::units)
        .find(is_used)
        .expect("there are leaves");
    let end = number(&file.0, 88);
    let lost = free[0].iter().find(|extent| extent.end < end);
    let lost = lost.expect("blocks in front of others were replaced");
    let cases: [(&str, u64, Change<'_, FreeMap>); 2] = [
        ("used twice", used.start, &|lists| lists[0].push(used.clone())),
        ("neither used nor free", lost.start, &|lists| {
            lists[0].retain(|extent| extent != lost);
        }),
    ];
    for (what, unit, change) in cases {
        let mut changed = file.clone();
        let mut lists = free.clone();
        change(&mut lists);
        changed.set_free_map(&mut lists);
        let found = problems(&changed.open().expect("opening does not look at all blocks"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_names(&found[0], what);
        assert!(
            matches!(&found[0], Error::Corrupt(place) if place.unit == Some(unit)),
            "{found:?}"
        );
    }
}

#[test]
fn an_end_of_the_file_that_is_neither_used_nor_free_is_found() {
    let mut file = grown();
    let units = number(&file.0, 88);
    for slot in [0, 2048, 4096, 6144] {
        file.0[slot + 88..slot + 96].copy_from_slice(&(units + 3).to_le_bytes());
        file.sign_superblock(slot);
    }
    file.0.resize((units as usize + 3) * UNIT_BYTES, 0);
    let found = problems(&file.open().expect("opening does not look at all blocks"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_names(&found[0], "the end of the file");
}

/// A node that is whole, but not the one that belongs to its place in the tree, would hide records.
#[test]
fn nodes_that_are_not_what_their_parent_states_are_refused() {
    let file = Forged::after(|database| fill(database, 0..60));
    let root = file.nodes(INNER).pop().expect("the leaves have a parent");
    let (first, second) = (file.child(&root, 0), file.child(&root, 1));
    let count = |child: &Range<usize>| number(&file.0, child.start + 16);
    assert_eq!(count(&first), count(&second), "all records have the same length");
    let swap = |data: &mut Vec<u8>| {
        let before = data[first.clone()].to_vec();
        data.copy_within(second.clone(), first.start);
        data[second.clone()].copy_from_slice(&before);
    };
    let raise = |data: &mut Vec<u8>| {
        data[root.start + 6] += 1;
        data[root.start + HEADER_BYTES] += 1;
    };
    let shift = |data: &mut Vec<u8>| {
        data[first.start + 16] += 1;
        data[second.start + 16] -= 1;
    };
    let cases: [(&str, Change<'_, Vec<u8>>); 3] = [
        ("does not cover the keys", &swap),
        ("not on the level below", &raise),
        ("another number of records", &shift),
    ];
    for (what, change) in cases {
        let mut changed = file.clone();
        change(&mut changed.0);
        changed.sign(&root);
        let database = changed.open().expect("the root is consistent");
        let tree = database.snapshot().collection("c").expect("it is there");
        assert_names(&tree.get(&key(0)).expect_err(what), what);
        let found = problems(&database);
        assert!(found.len() >= 2, "one for each child: {found:?}");
        assert_names(&found[0], what);
    }
}

#[test]
fn a_root_with_another_count_than_its_entry_of_the_catalog_is_refused() {
    let mut file = Forged::after(|database| fill(database, 0..60));
    let root = file.nodes(INNER).pop().expect("the leaves have a parent");
    let mut catalog = file.blocks().into_iter();
    let catalog = catalog.find(|block| file.0[block.start + 4] == LEAF && file.is_of_catalog(block));
    let catalog = catalog.expect("it has one leaf");
    let places = find(&file.0, &file.reference(&root));
    let [entry] = places[..] else { panic!("{places:?}") };
    assert!(catalog.contains(&entry) && number(&file.0, entry + 16) == 60);
    file.0[entry + 16] += 1;
    file.sign(&catalog);
    assert_names(&file.open().expect_err("it lost a record"), "another number of records");
}

/// Such a record would never be purged.
#[test]
fn a_record_that_expires_without_a_hint_is_found() {
    const EXPIRES: u64 = (1 << 45) + 12_345;
    let mut file = Forged::after(|database| {
        let mut transaction = database.begin().expect("it is open");
        for number in 0..3 {
            let stored = transaction.put_until("c", &key(number), b"value", Some(EXPIRES + u64::from(number)));
            stored.expect("memory works");
        }
        transaction.commit(Durability::Strict).expect("memory works");
    });
    let places = find(&file.0, &varint(EXPIRES + 1));
    let [expiry] = places[..] else { panic!("{places:?}") };
    let leaf = file.nodes(LEAF).into_iter().find(|leaf| leaf.contains(&expiry));
    file.0[expiry + 2] ^= 1;
    file.sign(&leaf.expect("it stands in the record"));
    let found = problems(&file.open().expect("opening does not look at all records"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_names(&found[0], "has no hint");
    assert!(
        matches!(&found[0], Error::Corrupt(place) if place.collection.as_deref() == Some("c")),
        "{found:?}"
    );
}

/// Offsets and lengths of the records in the first half of a log.
fn log_records(log: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 1024;
    while at + 40 <= log.len() && word(log, at) != 0 {
        found.push(at..at + 40 + word(log, at + 4) as usize);
        at = (at + 40 + word(log, at + 4) as usize).next_multiple_of(8);
    }
    found
}

/// Writes the right checksums into the records of the first half of a log.
fn sign_log(log: &mut [u8]) {
    let salt = log[32..40].to_vec();
    let mut before = salt[..4].to_vec();
    for record in log_records(log) {
        log[record.start + 12..record.start + 16].copy_from_slice(&before);
        let parts = [
            &salt,
            &log[record.start..record.start + 36],
            &log[record.start + 40..record.end],
        ];
        before = crc32fast::hash(&parts.concat()).to_le_bytes().to_vec();
        log[record.start + 36..record.start + 40].copy_from_slice(&before);
    }
}

/// Values of a record that was certainly flushed are not read. They must not take the place of others.
#[test]
fn a_record_of_the_log_that_names_the_value_of_another_collection_is_refused() {
    let with_log = || Options {
        advanced: AdvancedOptions {
            log_bytes: Some(64 << 10),
            ..options().advanced
        },
        ..options()
    };
    let storage = MemoryStorage::new();
    let database = Database::open(Arc::new(storage.clone()), with_log()).expect("memory works");
    let set = |name: &str, number: u32| {
        let done = database.set(name, &key(number), &[number as u8; 2000], Durability::Strict);
        done.expect("memory works");
    };
    set("a", 0);
    database.checkpoint().expect("memory works");
    for number in 1..4 {
        set("b", number);
    }
    drop(database);
    let files = storage.files();
    let records = log_records(&files["log"]);
    assert_eq!(records.len(), 4);
    // The reference to its value is the last part of each record before the end of the commit.
    let value_of = |record: &Range<usize>| record.end - 17..record.end - 1;
    let open = |change: &dyn Fn(&mut [u8])| {
        let mut files = files.clone();
        let log = files.get_mut("log").expect("it is there");
        change(log);
        sign_log(log);
        Database::open(Arc::new(MemoryStorage::from_files(files)), with_log())
    };
    let whole = open(&|log| assert_eq!(log_records(log).len(), 4)).expect("nothing was changed");
    assert_eq!(whole.version(), 4);
    let forged = open(&|log| log.copy_within(value_of(&records[0]), value_of(&records[2]).start));
    assert_names(
        &forged.expect_err("the value belongs to the other collection"),
        "in use",
    );
}
