//! Salvage: writes everything still readable in a damaged database into a new one.
//!
//! As long as references are intact, they lead to the records: from the newest superblock, or the
//! newest root of a catalog, through the trees. Where a node cannot be read, the scan takes over:
//! it applies all nodes in the file that cover the node's keys, in the order in which they were
//! written.
//!
//! The newest node that covers a key decides about it, so a deleted record stays deleted unless the
//! leaf without it is lost. The readable part of the log is applied on top.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::block::BlockFile;
use crate::database::{Database, Options};
use crate::error::{Error, Result};
use crate::log::{LOG_FILE, SalvagedLog, is_empty, salvage};
use crate::node::Limits;
use crate::pages::DATA_FILE;
use crate::pages::{Copies, Superblock, read_copies};
use crate::state::MAX_NAME_BYTES;
use crate::storage::{MemoryStorage, Storage, StorageFile};

mod catalog;
mod choose;
mod control;
mod exact;
mod holes;
mod log;
mod report;
mod scan;
mod source;
mod target;
mod tree;

use catalog::Entry;
use control::{Control, Flow, Stop};
use holes::Hole;
pub use report::{
    Completeness, DamagedRange, LogState, LostRecord, RecoverPhase, RecoverProgress, RecoverReport,
    RecoveredCollection, RecoveredLog, RecoveredRoot,
};
use source::Source;
use target::{LostKeys, Writer};
use tree::Salvage;

/// Names of all files of a database.
const FILES: [&str; 2] = [DATA_FILE, LOG_FILE];
/// Largest node a database can have.
const MAX_NODE_BYTES: u32 = 65536;

/// Files of the source.
struct Files {
    data: Arc<dyn StorageFile>,
    log: Option<Arc<dyn StorageFile>>,
}

/// Reads every readable record of a damaged database out of `source` into a new database in
/// `target`.
///
/// The source is opened, locked and read, never written to. If the whole source can be read, the
/// result is the state that opening it gives; a missing log is no error either. `options` apply to
/// the new database; its nodes become larger than they say if the keys require it. Collections
/// whose name is lost are called `recovered-<id>`. After an error or a cancellation the target is
/// empty again.
///
/// Records keep their expiry; expired records not yet purged are copied too. A stored change feed
/// is not carried over: the new database has its own versions, and followers start over. If the
/// name of one of the engine's own collections is lost, it is recovered as `recovered-<id>` too.
///
/// With a key in `options` the new database is encrypted, whether or not the damaged one was. If all
/// copies of its superblocks are damaged, an encrypted database is lost: its data key was there.
///
/// The superblock and the free map identify blocks of an unfinished checkpoint. Without them,
/// records put together from single blocks can include records of such a checkpoint.
///
/// Memory is bounded by 32 bytes for each node of the file, the caches, the log, and the largest
/// value.
///
/// # Errors
/// [`Error::AlreadyExists`] if `target` has a database, [`Error::NotFound`] if `source` is empty,
/// [`Error::NotADatabase`] if nothing in it is ours, [`Error::WrongKey`] if it is encrypted and
/// `options` have another key or none, [`Error::VersionUnsupported`], and the errors
/// of opening and writing the new database. Damage to the source is no error; the report lists it.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::Arc;
/// use mangrove_engine::{Completeness, Database, Durability, Options, recover, storage::{MemoryStorage, Storage}};
///
/// let damaged = MemoryStorage::new();
/// let database = Database::open(Arc::new(damaged.clone()), Options::default())?;
/// let mut transaction = database.begin()?;
/// transaction.set("cities", b"Quito", b"2.0 M")?;
/// transaction.commit(Durability::Strict)?;
/// database.close()?;
/// damaged.open("data", false)?.write_at(0, &[0xFF; 8192])?; // both superblocks
///
/// let target = MemoryStorage::new();
/// let mut progress = |_| ControlFlow::Continue(());
/// let report = recover(Arc::new(damaged), Arc::new(target.clone()), Options::default(), &mut progress)?;
/// assert_eq!(report.completeness, Completeness::Reconstructed);
/// let database = Database::open(Arc::new(target), Options::default())?;
/// let cities = database.snapshot().collection("cities").expect("it came back");
/// assert_eq!(cities.get(b"Quito")?, Some(b"2.0 M".to_vec()));
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
#[allow(
    clippy::needless_pass_by_value,
    reason = "storages are handed over, as to Database::open"
)]
pub fn recover(
    source: Arc<dyn Storage>,
    target: Arc<dyn Storage>,
    options: Options,
    progress: &mut dyn FnMut(RecoverProgress) -> ControlFlow<()>,
) -> Result<RecoverReport> {
    check_empty(&*target)?;
    let has_log = source.exists(LOG_FILE)?;
    let log = has_log.then(|| source.open(LOG_FILE, false)).transpose()?;
    let data = match &log {
        // The log's records are worth having without the tree's.
        Some(log) if !source.exists(DATA_FILE)? && !is_empty(&**log)? => MemoryStorage::new().open(DATA_FILE, true)?,
        _ => source.open(DATA_FILE, false)?,
    };
    let files = Files { data, log };
    let mut copies = read_copies(&*files.data)?;
    let cipher = copies.unlock(options.key.as_ref())?;
    let unit_shift = copies.newest.as_ref().map_or(0, |newest| u32::from(newest.unit_shift));
    let source = Source::new(Arc::clone(&files.data), cipher, unit_shift)?;
    let control = Control::new(progress, source.len);
    match run(source, &files, &copies, &target, options, control) {
        Ok(report) => Ok(report),
        // Another process created a database there since the check: it is not ours to remove.
        Err(Stop::Failed(error @ (Error::AlreadyExists { .. } | Error::Locked { .. }))) => Err(error),
        Err(stop) => {
            // Ignored, so that the original error is reported. The target was empty; leftovers are
            // useless.
            let _ = target::clear(&*target);
            match stop {
                Stop::Failed(error) => Err(error),
                Stop::Cancelled => Ok(RecoverReport {
                    completeness: Completeness::Cancelled,
                    ..RecoverReport::new()
                }),
            }
        }
    }
}

fn check_empty(target: &dyn Storage) -> Result<()> {
    for name in FILES {
        if target.exists(name)? && !target.open(name, false)?.is_empty()? {
            return Err(Error::AlreadyExists {
                what: format!("the file {name} of the new database").into(),
            });
        }
    }
    Ok(())
}

/// Reads the intact records of the log, and tells whether there is one.
fn read_log(files: &Files, superblock: Option<&Superblock>) -> (SalvagedLog, LogState) {
    let is_used = superblock.is_none_or(|superblock| superblock.log_half_bytes > 0);
    match &files.log {
        Some(file) if is_used => {
            let log = salvage(&**file, superblock.map(Superblock::log_start).as_ref());
            (log, LogState::Intact)
        }
        None if is_used && superblock.is_some_and(|superblock| !superblock.closed) => {
            (SalvagedLog::default(), LogState::Missing)
        }
        _ => (SalvagedLog::default(), LogState::Absent),
    }
}

fn completeness(is_mixed: bool, copies: &Copies, log: LogState) -> Completeness {
    if is_mixed || log == LogState::Damaged {
        Completeness::Salvage
    } else if copies.is_certain && log != LogState::Missing {
        Completeness::Exact
    } else {
        Completeness::Reconstructed
    }
}

fn run(
    mut source: Source,
    files: &Files,
    copies: &Copies,
    target: &Arc<dyn Storage>,
    mut options: Options,
    mut control: Control<'_>,
) -> Flow<RecoverReport> {
    if let Some(report) = exact::copy(files, copies, target, &options, &mut control)? {
        return Ok(report);
    }
    let superblock = copies.newest.as_ref();
    let known = superblock.filter(|_| copies.is_certain);
    let last_generation = known.map_or(u64::MAX, |superblock| superblock.generation);
    let mut unit_shift = superblock.map(|superblock| u32::from(superblock.unit_shift));
    let (log, log_state) = read_log(files, superblock);
    let mut index = None;
    if known.is_none() {
        control.enter(RecoverPhase::Scanning)?;
        let found = scan::scan(&mut source, unit_shift, last_generation, &mut control)?;
        if superblock.is_none() && found.is_empty() {
            if log.records.is_empty() {
                return Err(Stop::Failed(Error::NotADatabase { file: DATA_FILE.into() }));
            }
            unit_shift = log::unit_shift(&log, |shift| BlockFile::new(Arc::clone(&files.data), shift));
        }
        let longest_key = found.longest_key.max(log::longest_key(&log));
        options.advanced.node_bytes = node_bytes_for(options.advanced.node_bytes, longest_key);
        unit_shift = unit_shift.or(Some(found.unit_shift));
        index = Some(found);
    }
    if let Some(superblock) = superblock {
        options.advanced.node_bytes = options.advanced.node_bytes.max(superblock.node_bytes);
    }
    let database = target::create(target, options)?;
    let unit_shift = unit_shift.expect("the superblock or the scan gave it");
    let mut salvage = Salvage::new(source, unit_shift, last_generation, index, control);
    salvage.report.log.state = log_state;
    let (root, as_of) = match superblock {
        Some(superblock) if copies.is_certain => (superblock.catalog, superblock.generation),
        Some(superblock) => salvage.choose(superblock)?,
        None => (None, 0),
    };
    if let Some(superblock) = superblock.filter(|superblock| superblock.generation == as_of) {
        salvage.learn_free_space(superblock);
    }
    salvage.control.enter(RecoverPhase::Copying)?;
    let (entries, catalog) = catalog::collections(&mut salvage, root, as_of)?;
    let mut is_mixed = !catalog.holes.is_empty();
    for hole in &catalog.holes {
        let names = entries.iter().filter_map(|entry| entry.name.as_ref());
        let inside = names.filter(|name| hole.range.contains(name.as_bytes())).count();
        add_range(&mut salvage, None, hole, inside as u64);
    }
    let mut names = BTreeSet::new();
    let mut lost = BTreeMap::new();
    let (hidden, entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(Entry::is_hidden);
    let hidden = hidden.into_iter().map(|entry| entry.collection.id).collect();
    for entry in entries {
        is_mixed |= collection(&mut salvage, &database, &mut names, &mut lost, entry)?;
    }
    let used = superblock.filter(|superblock| superblock.generation == catalog.as_of);
    log::apply(&mut salvage, &database, &log, used.is_none(), lost, hidden)?;
    target::finish(database, &mut salvage.control)?;
    let mut report = salvage.report;
    report.unreadable_blocks += salvage.source.unreadable_pieces;
    report.root = match used {
        Some(superblock) => RecoveredRoot::Superblock {
            generation: superblock.generation,
            version: superblock.version,
        },
        None if catalog.as_of > 0 => RecoveredRoot::Catalog {
            generation: catalog.as_of,
        },
        None => RecoveredRoot::None,
    };
    report.completeness = completeness(is_mixed || report.lost_record_count > 0, copies, report.log.state);
    report.collections.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(report)
}

/// Smallest node size that takes keys of this length.
fn node_bytes_for(mut node_bytes: u32, longest_key: usize) -> u32 {
    while (256..MAX_NODE_BYTES).contains(&node_bytes) && Limits::new(node_bytes as usize).max_key_bytes < longest_key {
        node_bytes = (node_bytes * 2).min(MAX_NODE_BYTES);
    }
    node_bytes
}

fn add_range(salvage: &mut Salvage<'_>, collection: Option<&str>, hole: &Hole, recovered: u64) {
    salvage.report.add_range(DamagedRange {
        collection: collection.map(str::to_owned),
        lower: hole.range.lower.clone(),
        upper: hole.range.upper.clone(),
        expected: hole.expected,
        recovered,
    });
}

/// Recovers one collection; returns whether its records may come from more than one checkpoint.
fn collection(
    salvage: &mut Salvage<'_>,
    database: &Database,
    names: &mut BTreeSet<String>,
    lost: &mut BTreeMap<u32, LostKeys>,
    entry: Entry,
) -> Flow<bool> {
    let Entry {
        name,
        collection,
        as_of,
    } = entry;
    let max_name_bytes = MAX_NAME_BYTES.min(database.max_key_bytes());
    let own = name.filter(|name| name.len() <= max_name_bytes && !names.contains(name));
    let is_named = own.is_some();
    let mut name = own.unwrap_or_else(|| format!("recovered-{}", collection.id));
    while names.contains(&name) {
        name.push('+');
    }
    target::create_collection(database, &name, &collection)?;
    let mut writer = Writer::new(database, &name);
    let outcome = salvage.tree(collection.id, collection.root, as_of, &mut writer)?;
    lost.insert(collection.id, writer.finish()?);
    for hole in &outcome.holes {
        add_range(salvage, Some(&name), hole, 0);
    }
    salvage.report.collections.push(RecoveredCollection {
        name: name.clone(),
        id: collection.id,
        is_named,
        count: 0,
    });
    names.insert(name);
    Ok(outcome.is_found || !outcome.holes.is_empty() || !is_named)
}
