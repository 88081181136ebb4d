//! The committed corpus: one or a few valid inputs for each target.

use std::sync::Arc;

use super::open::shorten;
use crate::block::{self, BlockInfo, BlockRef, Compression, Kind};
use crate::database::{AdvancedOptions, Database, Options};
use crate::error::Result;
use crate::log::Position;
use crate::node::{Child, LeafCell, Node, ValuePlace};
use crate::pages::{Extent, Superblock, free_map};
use crate::state::Collection;
use crate::storage::{MemoryStorage, Storage};
use crate::testing::sim::SimRng;
use crate::transaction::Durability;

const REFERENCE: BlockRef = BlockRef {
    unit: 20,
    units: 2,
    checksum: 0xABCD_0123,
    raw_len: 800,
};
const CHILD: Child = Child {
    pointer: REFERENCE,
    count: 12,
    has_overflow: false,
};

/// Returns the target, name and bytes of each seed.
///
/// # Errors
/// Those of an in-memory storage.
pub fn seeds() -> Result<Vec<(&'static str, &'static str, Vec<u8>)>> {
    let mut rng = SimRng::new(11);
    let mut random = |len: usize| (0..len).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
    let extents = [Extent { start: 30, units: 4 }, Extent { start: 40, units: 200 }];
    let catalog = Collection {
        root: Some(CHILD),
        key_codec: "any".to_owned(),
        value_codec: "structured".to_owned(),
        ..Collection::new(3, 0)
    };
    let mut recipe = Vec::new();
    while !super::node(&recipe) {
        recipe = [vec![1, 5], random(500)].concat();
    }
    let mut list = vec![
        ("node", "recipe", recipe),
        ("operations", "short", random(200)),
        ("operations", "middle", random(1200)),
        ("operations", "long", random(4000)),
        ("superblock", "two-slots", superblocks()?),
        ("block", "raw", block_of(&random(300), Compression::None)),
        ("block", "lz4", block_of(&b"mangrove ".repeat(200), Compression::Lz4)),
        ("node", "leaf", page(&leaf(b"", None))),
        ("node", "leaf-between-fences", page(&leaf(b"key 0", Some(b"key 9")))),
        ("node", "inner", page(&inner())),
        (
            "free_map",
            "two-lists",
            [
                vec![0, 4],
                free_map::encode(&extents, &[Extent { start: 20, units: 1 }]),
            ]
            .concat(),
        ),
        ("catalog", "collection", catalog.encode()),
        ("reference", "block", REFERENCE.encode().to_vec()),
        ("reference", "child", CHILD.encode().to_vec()),
    ];
    for (name, compression) in [("raw", Compression::None), ("lz4", Compression::Lz4)] {
        list.push(("open", name, shorten(&database(256, compression, 60, 0)?)));
    }
    list.push(("open", "empty", shorten(&database(512, Compression::None, 0, 0)?)));
    list.push((
        "open",
        "chunks",
        shorten(&database(512, Compression::Lz4, 3, (1 << 20) + 5)?),
    ));
    Ok(list)
}

fn superblocks() -> Result<Vec<u8>> {
    let mut superblock = Superblock {
        unit_shift: 9,
        compression: Compression::Lz4,
        node_bytes: 512,
        database_id: 7,
        generation: 4,
        version: 9,
        catalog: Some(CHILD),
        free_map: Some(REFERENCE),
        file_units: 64,
        next_collection_id: 4,
        epoch: 0,
        log_half_bytes: 0,
        log: Position::default(),
        closed: true,
        log_is_flushed: true,
        log_reaches: 0,
        encryption: None,
    };
    let file = MemoryStorage::new().open("data", true)?;
    superblock.write(&*file)?;
    superblock.generation = 5;
    superblock.write(&*file)?;
    let mut bytes = vec![0x0F];
    for at in [0, 2048, 4096, 6144] {
        let mut record = [0; super::RECORD_BYTES];
        file.read_at(at, &mut record)?;
        bytes.extend_from_slice(&record);
    }
    Ok(bytes)
}

fn block_of(payload: &[u8], compression: Compression) -> Vec<u8> {
    let info = BlockInfo {
        kind: Kind::Leaf,
        level: 0,
        owner: 1,
        generation: 1,
    };
    let mut bytes = vec![1];
    let mut image = Vec::new();
    block::encode(info, &[payload], compression, super::UNIT_BYTES, &mut image);
    bytes.append(&mut image);
    bytes
}

fn page(node: &Node) -> Vec<u8> {
    let (front, heap) = node.image();
    [b"\x00\x05key 5", front, heap].concat()
}

fn leaf(lower: &[u8], upper: Option<&[u8]>) -> Node {
    let mut node = Node::new(512, 0, lower, upper);
    node.mark_overflow();
    let mut payload = Vec::new();
    for number in 0..8_usize {
        let value = vec![number as u8; number * 3];
        let place = match number {
            4 => ValuePlace::OutOfLine(REFERENCE),
            _ => ValuePlace::Inline(&value),
        };
        let value_len = value.len();
        LeafCell::new(value_len, place).encode_into(&mut payload);
        node.insert(number, format!("key {number}").as_bytes(), &payload);
    }
    node
}

fn inner() -> Node {
    let mut node = Node::new(512, 1, b"", None);
    for (index, key) in ["", "g", "key", "key 5", "z"].iter().enumerate() {
        node.insert(index, key.as_bytes(), &CHILD.encode());
    }
    node
}

/// Creates a database of three collections whose newest superblock is in slot B.
fn database(node_bytes: u32, compression: Compression, records: u32, large: usize) -> Result<Vec<u8>> {
    let storage = MemoryStorage::new();
    let options = Options {
        compression,
        advanced: AdvancedOptions {
            unit_bytes: 512,
            node_bytes,
            database_id: Some(7),
            session: Some(7),
            ..AdvancedOptions::default()
        },
        ..Options::default()
    };
    let database = Database::open(Arc::new(storage.clone()), options)?;
    if records > 0 {
        for round in 0..2_u32 {
            let mut transaction = database.begin()?;
            for number in 0..records {
                let key = format!("key {:03}", number * 7 % records + round * 3);
                let value = vec![number as u8; if number == 5 { 900 } else { 12 }];
                transaction.set("records", key.as_bytes(), &value)?;
            }
            transaction.set("", b"only", &vec![3; large])?;
            transaction.set("emptied", b"key", b"value")?;
            transaction.delete("emptied", b"key")?;
            transaction.commit(Durability::Strict)?;
        }
    }
    drop(database);
    Ok(storage.files()["data"].clone())
}
