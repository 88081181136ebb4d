//! Opening: creation, or recovery from the newest superblock.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};

use super::{Collection, Config, DATA_FILE, Options, Published, Shared, Version, Writer};
use crate::block::BlockFile;
use crate::cache::Pager;
use crate::checkpoint::{Found, Space, Superblock, probe_root, read_all};
use crate::error::{Error, Result};
use crate::node::{Child, Limits};
use crate::storage::{Storage, StorageFile};
use crate::tree::cursor::TreeCursor;
use crate::tree::{Direction, KeyRange, value};

/// Smallest cache: a few nodes of the largest size.
const MIN_CACHE_BYTES: usize = 64 << 10;

pub(super) fn open(storage: &dyn Storage, options: &Options) -> Result<Shared> {
    check(options)?;
    let missing = || Error::NotFound {
        what: "the database".to_owned(),
    };
    let create = options.create && !options.read_only;
    if !create && !storage.exists(DATA_FILE)? {
        return Err(missing());
    }
    let file = storage.open(DATA_FILE, create)?;
    let superblock = match read_all(&*file, DATA_FILE)? {
        Found::NotCreated if create => create_in(&*file, options)?,
        Found::NotCreated => return Err(missing()),
        Found::Superblocks(_) if options.exclusive => {
            return Err(Error::AlreadyExists {
                what: "the database".to_owned(),
            });
        }
        Found::Superblocks(mut list) => list.swap_remove(0),
    };
    recover(file, superblock, options)
}

fn check(options: &Options) -> Result<()> {
    let invalid = |what: &str| Err(Error::InvalidArgument { what: what.to_owned() });
    if !options.unit_bytes.is_power_of_two() || !(512..=65536).contains(&options.unit_bytes) {
        return invalid("unit_bytes must be a power of two from 512 to 65536");
    }
    if !(256..=65536).contains(&options.node_bytes) {
        return invalid("node_bytes must be from 256 to 65536");
    }
    if options.cache_bytes < MIN_CACHE_BYTES {
        return invalid("cache_bytes must be at least 65536");
    }
    Ok(())
}

/// Writes the first superblock, into slot B, and nothing else (invariant I9).
fn create_in(file: &dyn StorageFile, options: &Options) -> Result<Superblock> {
    let unit_shift = options.unit_bytes.trailing_zeros() as u8;
    let superblock = Superblock {
        unit_shift,
        compression: options.compression,
        node_bytes: options.node_bytes,
        database_id: options.database_id.unwrap_or_else(random_id),
        generation: 1,
        version: 0,
        catalog: None,
        free_map: None,
        file_units: Superblock::first_data_unit(unit_shift),
        next_collection_id: 1,
        epoch: 0,
    };
    superblock.write(file)?;
    file.flush()?;
    // Some hosts have reported a write as done and kept nothing: what was written must be there.
    match read_all(file, DATA_FILE)? {
        Found::Superblocks(list) if list.first() == Some(&superblock) => Ok(superblock),
        _ => Err(Error::Io {
            context: format!("creating {DATA_FILE}"),
            source: "the storage does not return what was written to it".to_owned(),
        }),
    }
}

fn random_id() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

/// Builds the state that a superblock describes. Nothing is written.
fn recover(file: Arc<dyn StorageFile>, superblock: Superblock, options: &Options) -> Result<Shared> {
    let file_len = file.len()?;
    let blocks = BlockFile::new(file, u32::from(superblock.unit_shift));
    let limits = Limits::new(superblock.node_bytes as usize);
    let pager = Pager::new(blocks, limits, options.cache_bytes);
    let space = Space::load(&pager, &superblock)?;
    let mut used_end = space.free.clone();
    used_end.trim_end();
    // Without data the file may end inside the superblocks: a creation that was cut short leaves it so.
    let has_data = used_end.end() > Superblock::first_data_unit(superblock.unit_shift);
    if has_data && file_len < used_end.end() << superblock.unit_shift {
        return Err(Error::corrupt(format!(
            "the file has {file_len} bytes but its data reaches to {}; it was truncated",
            used_end.end() << superblock.unit_shift
        )));
    }
    let version = Arc::new(Version {
        version: superblock.version,
        collections: read_catalog(&pager, superblock.catalog)?,
    });
    Ok(Shared {
        config: Config {
            limits,
            compression: superblock.compression,
            cache_bytes: options.cache_bytes,
            read_only: options.read_only,
        },
        published: Mutex::new(Published::new(Arc::clone(&version))),
        writer: Mutex::new(Writer::new(superblock, version, space)),
        pager,
    })
}

fn read_catalog(pager: &Pager, root: Option<Child>) -> Result<BTreeMap<String, Collection>> {
    let mut collections = BTreeMap::new();
    let mut cursor = TreeCursor::new(root, 0, &KeyRange::all(), Direction::Forward);
    let mut bytes = Vec::new();
    while cursor.advance(pager)? {
        let record = cursor.record().expect("the cursor stands on a record");
        bytes.clear();
        value::read(&pager.blocks, 0, &record, &mut bytes)?;
        let collection = Collection::decode(&bytes)?;
        let name =
            String::from_utf8(cursor.key().to_vec()).map_err(|_| Error::corrupt("a collection's name is not UTF-8"))?;
        if let Some(root) = &collection.root {
            probe_root(pager, root, collection.id).map_err(|error| error.in_collection(&name))?;
        }
        collections.insert(name, collection);
    }
    Ok(collections)
}
