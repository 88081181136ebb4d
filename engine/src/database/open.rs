//! Opening: creation, or recovery from the newest superblock.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use super::Options;
use super::fence::Fence;
use super::options::MAX_LOG_BYTES;
use crate::block::{BlockFile, Compression, HEADER_BYTES};
use crate::error::{Error, Result};
use crate::log::{self, GroupFlush, LOG_FILE, Log, Position, Replay};
use crate::node::{Child, Limits};
use crate::pages::DATA_FILE;
use crate::pages::{Encryption, Found, Pager, Space, Superblock, probe_root, read_all, unlock};
use crate::range::{Direction, KeyRange};
use crate::state::{Collection, Collections, Config, Credentials, Shared, Version, Writer};
use crate::storage::{Storage, StorageFile, Watch};
use crate::trace;
use crate::transaction::apply_log;
use crate::tree::cursor::TreeCursor;
use crate::tree::value;

/// Smallest reserve: space for a few checkpoints of one changed record.
const MIN_RESERVE_NODES: u32 = 32;
/// Smallest cache: a few nodes of the largest size.
const MIN_CACHE_BYTES: usize = 64 << 10;

pub(super) fn open(storage: &dyn Storage, options: &Options) -> Result<Shared> {
    check(options)?;
    let missing = || Error::NotFound {
        what: "the database".into(),
    };
    let create = options.create && !options.read_only;
    if !storage.exists(DATA_FILE)? {
        check_no_log(storage)?;
        if !create {
            return Err(missing());
        }
    }
    let mut file = storage.open(DATA_FILE, create)?;
    let watch = if options.read_only {
        Watch::Nothing
    } else {
        storage.watch()
    };
    let is_watched = watch != Watch::Nothing;
    let start_fence = || {
        is_watched
            .then(|| Fence::new(&file, watch, session_of(options)))
            .transpose()
    };
    let mut fence = start_fence()?;
    let mut superblocks = match read_all(&*file, DATA_FILE)? {
        Found::NotCreated if create => {
            check_no_log(storage)?;
            let created = create_in(&*file, options)?;
            fence = start_fence()?;
            // Some hosts have reported a write as done and stored nothing. And the fence must have read
            // this creation, not another one's.
            check_created(&*file, &created)?
        }
        Found::NotCreated => {
            check_no_log(storage)?;
            return Err(missing());
        }
        Found::Superblocks(_) if options.exclusive => {
            return Err(Error::AlreadyExists {
                what: "the database".into(),
            });
        }
        Found::Superblocks(list) => list,
    };
    unlock(&mut superblocks, options.key.as_ref())?;
    if cfg!(feature = "tracing") {
        warn_of_lost_slot(&superblocks);
    }
    let mut log = open_log(storage, &superblocks[0], options)?;
    if let Some(log) = &log {
        log::check_presence(&**log, &superblocks[0].log_start())?;
    }
    let unwatched = log.clone();
    if let Some(fence) = &fence {
        fence.arm(&superblocks[0]);
        file = fence.watch(file, false);
        log = log.map(|log| fence.watch(log, true));
    }
    let mut shared = recover(&file, log.as_ref(), &superblocks, options)?;
    shared.config.beside_writer = storage.is_beside_writer();
    if let Some(fence) = fence {
        let mut writer = shared.lock_writer();
        writer.superblock.epoch = fence.session;
        let tail = writer.log.as_ref().map(Log::tail);
        drop(writer);
        fence.begin(unwatched, tail)?;
    }
    if !options.read_only && superblocks[0].closed && shared.newest().version > superblocks[0].version {
        // A power cut took the superblock without the flag "closed" and left the records (I21).
        shared.lock_writer().begin_log(&shared)?;
        shared.flush.flush_alone(shared.pager.blocks.file())?;
    }
    trace::event!(
        INFO,
        "opened",
        version = shared.newest().version,
        checkpoint_version = superblocks[0].version,
        generation = superblocks[0].generation,
        was_closed = superblocks[0].closed,
        read_only = options.read_only,
    );
    Ok(shared)
}

/// Tells of a slot without a superblock: its checkpoint may have been the newest.
fn warn_of_lost_slot(superblocks: &[Superblock]) {
    let newest = &superblocks[0];
    let has_both = superblocks
        .iter()
        .any(|other| other.generation % 2 != newest.generation % 2);
    // Creation writes one slot.
    if !has_both && newest.generation > 1 {
        trace::event!(
            WARN,
            "one superblock is lost, the other one is used",
            generation = newest.generation,
            version = newest.version,
        );
    }
}

/// Keeps a log whose data file is lost from being taken for that of a new database.
fn check_no_log(storage: &dyn Storage) -> Result<()> {
    if storage.exists(LOG_FILE)? && !log::is_empty(&*storage.open(LOG_FILE, false)?)? {
        return Err(Error::corrupt(
            "the file \"data\" is missing or empty, but \"log\" beside it has commits; put \"data\" back, or recover what \"log\" holds",
        ));
    }
    Ok(())
}

/// Opens the log file; `None` if the database has no log, or the file is missing and not needed.
fn open_log(storage: &dyn Storage, newest: &Superblock, options: &Options) -> Result<Option<Arc<dyn StorageFile>>> {
    if newest.log_half_bytes == 0 {
        return Ok(None);
    }
    if !storage.exists(LOG_FILE)? {
        if !newest.closed {
            return Err(Error::corrupt(
                "the file \"log\" is missing, and with it the newest commits; put it back beside \"data\", or recover what \"data\" holds",
            ));
        }
        if options.read_only {
            return Ok(None);
        }
    }
    storage.open(LOG_FILE, !options.read_only).map(Some)
}

/// Recovers from the newest superblock. If something it needs is damaged, the previous superblock
/// and the log since then serve as well, provided that they lead to the same version.
fn recover(
    file: &Arc<dyn StorageFile>,
    log: Option<&Arc<dyn StorageFile>>,
    superblocks: &[Superblock],
    options: &Options,
) -> Result<Shared> {
    let newest = &superblocks[0];
    let mut start = Start {
        // Without a close, blocks of the next generation may have been left behind. Skipping two
        // numbers makes new blocks newer than those, and leaves the next superblock in the same slot.
        generation: newest.generation + if newest.closed || options.read_only { 0 } else { 2 },
        ..Start::reading(newest, superblocks)
    };
    start.may_merge = !options.read_only;
    let mut recovered = recover_from(file, log, newest, start, options);
    if start.may_merge && matches!(recovered, Err(Error::StorageFull { .. })) {
        trace::event!(
            WARN,
            "opening found no space to merge the log, and keeps it in memory",
            generation = newest.generation,
            version = newest.version,
        );
        start.may_merge = false;
        recovered = recover_from(file, log, newest, start, options);
    }
    let error = match recovered {
        Err(error @ Error::Corrupt(_)) => error,
        recovered => return recovered,
    };
    let Some(older) = older_than(newest, superblocks) else {
        return Err(error);
    };
    let start = Start {
        // The next checkpoint overwrites the damaged slot, under a generation never used before, not
        // even for blocks of an unfinished checkpoint.
        generation: newest.generation + 3,
        ..Start::reading(older, superblocks)
    };
    let Ok(shared) = recover_from(file, log, older, start, options) else {
        return Err(error);
    };
    if shared.newest().version < newest.version.max(newest.log_reaches) {
        return Err(error);
    }
    trace::event!(
        WARN,
        "opened from the older superblock",
        generation = older.generation,
        damaged_generation = newest.generation,
        version = shared.newest().version,
        cause = error.to_string().as_str(),
    );
    let mut writer = shared.lock_writer();
    if let Some(log) = &mut writer.log {
        log.checkpoint_first = true;
    }
    drop(writer);
    Ok(shared)
}

fn check(options: &Options) -> Result<()> {
    let invalid = |what: &str| Err(Error::InvalidArgument { what: what.into() });
    if !options.advanced.unit_bytes.is_power_of_two() || !(512..=65536).contains(&options.advanced.unit_bytes) {
        return invalid("unit_bytes must be a power of two from 512 to 65536");
    }
    if !(256..=65536).contains(&options.advanced.node_bytes) {
        return invalid("node_bytes must be from 256 to 65536");
    }
    if options.cache_bytes < MIN_CACHE_BYTES {
        return invalid("cache_bytes must be at least 65536");
    }
    if !matches!(options.log_bytes(), 0 | 0x2000..=MAX_LOG_BYTES) {
        return invalid("log_bytes must be 0 or from 8192 to 1073741824");
    }
    Ok(())
}

/// Writes the first superblock to slot B, and nothing else (invariant I9).
fn create_in(file: &dyn StorageFile, options: &Options) -> Result<Superblock> {
    let unit_shift = options.advanced.unit_bytes.trailing_zeros() as u8;
    let database_id = options.advanced.database_id.unwrap_or_else(random_id);
    let create_encryption = |key| Encryption::create(key, database_id);
    let salt = log::mix(database_id as u64, (database_id >> 64) as u64, session_of(options));
    let superblock = Superblock {
        unit_shift,
        compression: options.compression,
        node_bytes: options.advanced.node_bytes,
        database_id,
        generation: 1,
        version: 0,
        catalog: None,
        free_map: None,
        file_units: Superblock::first_data_unit(unit_shift),
        next_collection_id: 1,
        epoch: 0,
        log_half_bytes: options.log_bytes() / 2 / 512 * 512,
        log: Position::first(0, salt),
        closed: true,
        log_is_flushed: false,
        log_reaches: 0,
        encryption: options.key.as_ref().map(create_encryption).transpose()?,
    };
    superblock.write(file)?;
    file.flush()?;
    Ok(superblock)
}

/// Reads back the superblock that a creation wrote.
fn check_created(file: &dyn StorageFile, superblock: &Superblock) -> Result<Vec<Superblock>> {
    match read_all(file, DATA_FILE)? {
        Found::Superblocks(list) if list.first() == Some(superblock) => Ok(list),
        _ => Err(Error::io(
            format!("creating {DATA_FILE}"),
            "the storage does not return what was written to it",
        )),
    }
}

fn random_id() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

fn session_of(options: &Options) -> u64 {
    options.advanced.session.unwrap_or_else(|| random_id() as u64)
}

/// How to recover from a superblock.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    /// Generation that the next checkpoint follows.
    pub generation: u64,
    /// No other superblock reaches what this one keeps for the checkpoint before it: it is the older
    /// one, beside a newer one that is damaged, or the other is a copy of it.
    pub stands_alone: bool,
    /// Whether replay may merge its memtables, where they exceed the memory, into nodes that it
    /// writes behind the end of the data file. Otherwise nothing is written.
    pub may_merge: bool,
}

impl Start {
    /// For reading only, from one of the superblocks of a file.
    pub(crate) fn reading(superblock: &Superblock, all: &[Superblock]) -> Self {
        let older = older_than(superblock, all);
        Self {
            generation: superblock.generation,
            // Each checkpoint writes a free map of its own.
            stands_alone: superblock.generation < all[0].generation
                || older.is_none_or(|older| older.free_map == superblock.free_map),
            may_merge: false,
        }
    }
}

/// The newest superblock before this one.
fn older_than<'a>(superblock: &Superblock, all: &'a [Superblock]) -> Option<&'a Superblock> {
    let older = all.iter().filter(|older| older.generation < superblock.generation);
    older.max_by_key(|older| older.generation)
}

/// Builds the state that a superblock and the log after it describe.
pub(crate) fn recover_from(
    file: &Arc<dyn StorageFile>,
    log: Option<&Arc<dyn StorageFile>>,
    superblock: &Superblock,
    start: Start,
    options: &Options,
) -> Result<Shared> {
    let file_len = file.len()?;
    let blocks = BlockFile::new(Arc::clone(file), u32::from(superblock.unit_shift)).encrypted_by(superblock.cipher());
    // A whole node fits into the units of `node_bytes`.
    let limits = Limits::new(superblock.node_bytes as usize + HEADER_BYTES - blocks.overhead());
    let pager = Pager::new(blocks, limits, options.cache_bytes);
    let mut space = Space::load(&pager, superblock)?;
    if start.stands_alone {
        space.release_all()?;
    }
    let used_end = space.free.used_end();
    // Without data the file may end inside the superblocks, as an interrupted creation leaves it.
    let has_data = used_end > Superblock::first_data_unit(superblock.unit_shift);
    if has_data && file_len < used_end << superblock.unit_shift {
        let end = used_end << superblock.unit_shift;
        return Err(Error::corrupt(format!(
            "the file has {file_len} bytes but its data reaches to {end}; it was truncated"
        )));
    }
    let version = Arc::new(Version {
        version: superblock.version,
        moves: 0,
        collections: read_catalog(&pager, superblock.catalog)?,
    });
    let mut replay = match log {
        Some(file) => log::replay(
            &**file,
            superblock.log_half_bytes,
            superblock.database_id,
            &superblock.cipher(),
            superblock.log,
        )?,
        None => Replay::empty(superblock.log),
    };
    let config = Config {
        database_id: superblock.database_id,
        limits,
        compression: superblock.compression,
        cache_bytes: options.cache_bytes,
        reserve_bytes: match options.advanced.reserve_bytes {
            0 => 0,
            bytes => bytes.max(MIN_RESERVE_NODES * superblock.node_bytes),
        },
        read_only: options.read_only,
        clock: options.clock.clone(),
        beside_writer: false,
    };
    let flush = GroupFlush::new(log.cloned(), superblock.version);
    let mut continued = superblock.clone();
    continued.generation = start.generation;
    let writer = Writer::new(continued, Arc::clone(&version), space, None);
    let shared = Shared::new(config, pager, flush, version, writer);
    shared.set_credentials(credentials_of(superblock, options));
    apply_log(&shared, &mut replay, start.may_merge)?;
    let reached = shared.newest().version;
    if reached < superblock.log_reaches {
        return Err(Error::corrupt(format!(
            "the log ends at version {reached}, but the last checkpoint holds part of the commits up to version {}: the \
             end of the log is damaged or lost; recover what the files hold",
            superblock.log_reaches
        )));
    }
    if let Some(log) = log {
        log::check_owner(&**log, &superblock.log_start(), &replay, reached)?;
    }
    continue_log(&shared, log, &replay, options)?;
    Ok(shared)
}

fn credentials_of(superblock: &Superblock, options: &Options) -> Option<Credentials> {
    Some(Credentials {
        key: options.key.clone()?,
        encryption: superblock.encryption.clone()?,
    })
}

/// Continues the log where it ends. Makes the replayed records durable first, because they become
/// visible now, and the next superblock overwrites the other one.
fn continue_log(
    shared: &Shared,
    file: Option<&Arc<dyn StorageFile>>,
    replay: &Replay<'_>,
    options: &Options,
) -> Result<()> {
    let Some(file) = file else {
        return if options.read_only {
            Ok(())
        } else {
            shared.flush.flush_alone(shared.pager.blocks.file())
        };
    };
    let mut writer = shared.lock_writer();
    let Superblock {
        log_half_bytes,
        database_id,
        compression,
        ..
    } = writer.superblock;
    let compress = compression == Compression::Lz4;
    let cipher = writer.superblock.cipher();
    let log = Log::new(
        Arc::clone(file),
        log_half_bytes,
        database_id,
        session_of(options),
        compress,
        cipher,
        replay,
    );
    writer.log = Some(log);
    drop(writer);
    if !replay.is_empty() {
        let version = shared.newest().version;
        shared.flush.appended(version, 0, 0, true);
        if !options.read_only {
            shared.make_durable(version)?;
        }
    } else if !options.read_only {
        shared.flush.flush_alone(shared.pager.blocks.file())?;
    }
    Ok(())
}

fn read_catalog(pager: &Pager, root: Option<Child>) -> Result<Collections> {
    let mut collections = Collections::default();
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
        if collections.by_id(collection.id).is_some() {
            return Err(Error::corrupt("two collections have the same id"));
        }
        collections.insert(name, collection);
    }
    Ok(collections)
}
