//! Copies a source that is fully readable, its log included: the result is the state that opening
//! it gives.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use super::control::{Control, Flow};
use super::report::{LogState, RecoverPhase, RecoverReport, RecoveredCollection, RecoveredRoot};
use super::target::{self, Writer};
use super::tree::Sink;
use super::{Files, completeness};
use crate::database::{Database, Options};
use crate::database::{Start, recover_from};
use crate::error::Error;
use crate::log;
use crate::pages::DATA_FILE;
use crate::pages::{Copies, Found, Superblock, read_all, unlock_source};
use crate::range::{Direction, KeyRange};
use crate::snapshot::Snapshot;
use crate::state::Shared;
use crate::state::expiry::HIDDEN;
use crate::storage::Storage;

/// Pages of the source kept in memory.
const CACHE_BYTES: usize = 1 << 20;
/// Number of records that counts as one leaf in progress reports.
const LEAF_RECORDS: u64 = 64;

/// Copies everything if it can all be read; otherwise returns `None` and leaves the target empty.
pub(super) fn copy(
    files: &Files,
    copies: &Copies,
    target: &Arc<dyn Storage>,
    options: &Options,
    control: &mut Control<'_>,
) -> Flow<Option<RecoverReport>> {
    let Ok(Found::Superblocks(mut list)) = read_all(&*files.data, DATA_FILE) else {
        return Ok(None);
    };
    if unlock_source(&mut list, options.key.as_ref()).is_err() {
        return Ok(None);
    }
    let newest = &list[0];
    let log = files.log.as_ref().filter(|_| newest.log_half_bytes > 0);
    if log.is_some_and(|log| log::check_presence(&**log, &newest.log_start()).is_err()) {
        return Ok(None);
    }
    let older = list.iter().filter(|one| one.generation < newest.generation);
    let older = older.max_by_key(|one| one.generation).filter(|_| log.is_some());
    let reading = Options {
        read_only: true,
        cache_bytes: CACHE_BYTES,
        ..Options::default()
    };
    for superblock in iter::once(newest).chain(older) {
        let start = Start::reading(superblock, &list);
        let Ok(shared) = recover_from(&files.data, log, superblock, start, &reading) else {
            continue;
        };
        let version = shared.newest().version;
        // A superblock is lost. If its checkpoint was newer and bypassed the log, only a scan finds
        // it.
        let may_be_older = !copies.is_certain && version == superblock.version;
        if version < newest.version.max(newest.log_reaches) || may_be_older {
            continue;
        }
        let mut options = options.clone();
        options.advanced.node_bytes = options.advanced.node_bytes.max(superblock.node_bytes);
        control.enter(RecoverPhase::Copying)?;
        let database = target::create(target, options)?;
        if let Some(collections) = copy_version(&Arc::new(shared), &database, control)? {
            target::finish(database, control)?;
            let mut report = RecoverReport::new();
            report.collections = collections;
            report.root = RecoveredRoot::Superblock {
                generation: superblock.generation,
                version: superblock.version,
            };
            describe_log(files, superblock, version, &mut report);
            report.completeness = completeness(false, copies, report.log.state);
            return Ok(Some(report));
        }
        drop(database);
        target::clear(&**target)?;
        control.forget_records();
    }
    Ok(None)
}

fn describe_log(files: &Files, superblock: &Superblock, version: u64, report: &mut RecoverReport) {
    let needs_none = superblock.log_half_bytes == 0 || superblock.closed;
    report.log.state = match &files.log {
        Some(file) if superblock.log_half_bytes > 0 => {
            let records = log::salvage(&**file, Some(&superblock.log_start())).records;
            let applied = records.iter().filter(|record| record.version <= version);
            report.log.applied_records = applied.count() as u64;
            LogState::Intact
        }
        _ if needs_none => LogState::Absent,
        _ => LogState::Missing,
    };
}

/// Copies the newest version; `None` if any of it cannot be read.
fn copy_version(
    shared: &Arc<Shared>,
    database: &Database,
    control: &mut Control<'_>,
) -> Flow<Option<Vec<RecoveredCollection>>> {
    let version = shared.newest();
    let snapshot = Snapshot::new(shared);
    let mut copied = BTreeMap::new();
    for (name, collection) in version.collections.iter() {
        if name.starts_with(HIDDEN) {
            continue;
        }
        let Some(tree) = snapshot.collection(name) else {
            return Ok(None);
        };
        let tree = tree.with_expired();
        target::create_collection(database, name, collection)?;
        let mut writer = Writer::new(database, name);
        let mut cursor = tree.cursor(KeyRange::all(), Direction::Forward);
        let (mut count, mut value) = (0, Vec::new());
        loop {
            let read = cursor.advance().and_then(|there_is_one| {
                value.clear();
                there_is_one.then(|| cursor.value_into(&mut value)).transpose()
            });
            match read {
                Ok(Some(())) => writer.put(cursor.key(), &value, cursor.expires_at().unwrap_or(0), 0)?,
                Ok(None) => break,
                Err(Error::Corrupt(_) | Error::Io(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            count += 1;
            if count % LEAF_RECORDS == 0 {
                writer.end_leaf()?;
                control.leaf(LEAF_RECORDS)?;
            }
        }
        writer.finish()?;
        copied.insert(name.clone(), (collection.id, count));
    }
    let list = copied.into_iter().map(|(name, (id, count))| RecoveredCollection {
        name,
        id,
        is_named: true,
        count,
    });
    Ok(Some(list.collect()))
}
