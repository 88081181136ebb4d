//! Applies the log's records on top of the records that the blocks gave.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::control::Flow;
use super::holes::Range;
use super::report::{LogState, RecoveredCollection};
use super::target::{self, LostKeys, stored_key_bytes};
use super::tree::Salvage;
use crate::block::{BlockFile, BlockRef};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::log::{Operation, Operations, SalvagedLog, SalvagedRecord};
use crate::node::{LeafCell, ValuePlace};
use crate::state::MAX_NAME_BYTES;
use crate::state::expiry::HIDDEN;
use crate::transaction::{Durability, ExclusiveTransaction, ReadWrite};
use crate::tree::value;

/// Bytes after which a transaction is committed.
const BATCH_BYTES: usize = 1 << 20;
/// Number of values sampled to determine the unit.
const MAX_SAMPLES: usize = 64;

fn operations(log: &SalvagedLog) -> impl Iterator<Item = Operation<'_>> {
    let payloads = log.records.iter().map(|record| record.payload.as_slice());
    payloads.flat_map(Operations::new).map_while(Result::ok)
}

/// Length of the longest key in the log.
pub(super) fn longest_key(log: &SalvagedLog) -> usize {
    let lengths = operations(log).map(|operation| match operation {
        Operation::Set { key, expires, .. } | Operation::SetOutOfLine { key, expires, .. } => {
            stored_key_bytes(key, expires)
        }
        _ => 0,
    });
    lengths.max().unwrap_or(0)
}

/// Whether a value that a record refers to can be read.
fn is_there(blocks: &BlockFile, owner: u32, len: u64, reference: &BlockRef) -> bool {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    value::is_readable(blocks, owner, len, reference).unwrap_or(false)
}

/// Whether all values that a record refers to can be read.
fn values_are_there(salvage: &Salvage<'_>, payload: &[u8]) -> bool {
    Operations::new(payload).all(|operation| match operation {
        Ok(Operation::SetOutOfLine {
            collection,
            value_len,
            reference,
            ..
        }) => is_there(&salvage.pager.blocks, collection, value_len, &reference),
        _ => true,
    })
}

/// Finds the unit with which most of the log's references lead to a value.
pub(super) fn unit_shift(log: &SalvagedLog, blocks: impl Fn(u32) -> BlockFile) -> Option<u32> {
    let hits = |shift: u32| {
        let blocks = blocks(shift);
        let samples = operations(log).filter_map(|operation| match operation {
            Operation::SetOutOfLine {
                collection,
                value_len,
                reference,
                ..
            } => Some(is_there(&blocks, collection, value_len, &reference)),
            _ => None,
        });
        samples.take(MAX_SAMPLES).filter(|is_there| *is_there).count()
    };
    let best = (9..=16).map(|shift| (hits(shift), shift)).max()?;
    (best.0 > 0).then_some(best.1)
}

/// Applies the log. `is_newer`: the blocks may be of a later checkpoint than the log's start.
///
/// Records already contained in the blocks do no harm as long as the log also has all commits
/// since: each record sets its keys regardless of their previous state. Operations on the
/// collections `hidden`, the engine's own, are skipped.
pub(super) fn apply(
    salvage: &mut Salvage<'_>,
    database: &Database,
    log: &SalvagedLog,
    is_newer: bool,
    lost: BTreeMap<u32, LostKeys>,
    hidden: BTreeSet<u32>,
) -> Flow<()> {
    let went_past = |record: &SalvagedRecord| record.missing > 0 && !record.after_damage;
    // Commits that bypassed the log are in a checkpoint, and so is everything before them.
    let contained = log.records.iter().rposition(went_past).filter(|_| is_newer);
    let from = contained.unwrap_or(0);
    let mut applier = Applier::new(database, salvage, &log.records[from..], lost, hidden);
    for (index, record) in log.records.iter().enumerate().skip(from) {
        if !record.is_confirmed && !values_are_there(salvage, &record.payload) {
            break;
        }
        if contained != Some(index) {
            salvage.report.log.lost_commits += record.missing;
        }
        let mut count = 0;
        for operation in Operations::new(&record.payload) {
            applier.operation(salvage, &operation?)?;
            count += 1;
        }
        salvage.report.log.applied_records += 1;
        salvage.control.leaf(count)?;
    }
    if log.is_damaged || salvage.report.log.lost_commits > 0 {
        salvage.report.log.state = LogState::Damaged;
    }
    applier.finish(salvage)?;
    Ok(())
}

struct Applier<'a> {
    database: &'a Database,
    transaction: Option<ExclusiveTransaction<'a>>,
    bytes: usize,
    /// Names of the collections in the target.
    names: BTreeMap<u32, String>,
    /// Keys whose value could not be read.
    lost: BTreeMap<u32, LostKeys>,
    /// Collections that the log drops, and the engine's own.
    left_out: BTreeSet<u32>,
}

impl<'a> Applier<'a> {
    fn new(
        database: &'a Database,
        salvage: &Salvage<'_>,
        records: &[SalvagedRecord],
        lost: BTreeMap<u32, LostKeys>,
        hidden: BTreeSet<u32>,
    ) -> Self {
        let collections = salvage.report.collections.iter();
        let all = records.iter().flat_map(|record| Operations::new(&record.payload));
        let dropped = all.filter_map(|operation| match operation {
            Ok(Operation::Drop { collection }) => Some(collection),
            _ => None,
        });
        Self {
            database,
            transaction: None,
            bytes: 0,
            names: collections.map(|found| (found.id, found.name.clone())).collect(),
            lost,
            left_out: dropped.chain(hidden).collect(),
        }
    }

    fn transaction(&mut self) -> Result<&mut ExclusiveTransaction<'a>> {
        if self.transaction.is_none() {
            self.transaction = Some(self.database.begin()?);
        }
        Ok(self.transaction.as_mut().expect("it was begun just now"))
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        match self.transaction.take() {
            Some(transaction) => transaction.commit(Durability::None).map(drop),
            None => Ok(()),
        }
    }

    /// Adds a collection under its own name or, if that is taken or lost, another.
    fn create(&mut self, salvage: &mut Salvage<'_>, id: u32, own: Option<&str>) -> Result<String> {
        let max_name_bytes = MAX_NAME_BYTES.min(self.database.max_key_bytes());
        let is_taken = |name: &str| self.names.values().any(|taken| taken == name);
        let own = own.filter(|name| name.len() <= max_name_bytes && !is_taken(name));
        let mut name = own.map_or_else(|| format!("recovered-{id}"), str::to_owned);
        while is_taken(&name) {
            name.push('+');
        }
        self.transaction()?.set_codecs(&name, "", "")?;
        self.names.insert(id, name.clone());
        salvage.report.collections.push(RecoveredCollection {
            name: name.clone(),
            id,
            is_named: own.is_some(),
            count: 0,
        });
        Ok(name)
    }

    /// Returns the name of a collection, created if needed; `None` if it is left out.
    fn name(&mut self, salvage: &mut Salvage<'_>, id: u32) -> Result<Option<String>> {
        match self.names.get(&id) {
            Some(name) => Ok(Some(name.clone())),
            None if self.left_out.contains(&id) => Ok(None),
            None => self.create(salvage, id, None).map(Some),
        }
    }

    fn set(
        &mut self,
        salvage: &mut Salvage<'_>,
        id: u32,
        key: &[u8],
        value: Option<&[u8]>,
        expires: u64,
    ) -> Result<()> {
        let Some(name) = self.name(salvage, id)? else {
            return Ok(());
        };
        let lost = self.lost.entry(id).or_default();
        // A hostile log can have keys of any length.
        let fits = stored_key_bytes(key, expires) <= self.database.max_key_bytes();
        match value.filter(|_| fits) {
            None => lost.add(key),
            Some(value) => {
                lost.remove(key);
                self.bytes += key.len() + value.len();
                let expires_at = (expires != 0).then_some(expires);
                self.transaction()?.set_until(&name, key, value, expires_at)?;
            }
        }
        if self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn operation(&mut self, salvage: &mut Salvage<'_>, operation: &Operation<'_>) -> Result<()> {
        match *operation {
            Operation::Set {
                collection,
                key,
                value,
                expires,
                ..
            } => self.set(salvage, collection, key, Some(value), expires)?,
            Operation::SetOutOfLine {
                collection,
                key,
                value_len,
                reference,
                expires,
                ..
            } => {
                let value_len = usize::try_from(value_len).unwrap_or(usize::MAX);
                let cell = LeafCell::new(value_len, ValuePlace::OutOfLine(reference));
                let mut bytes = Vec::new();
                let read = value::read(&salvage.pager.blocks, collection, &cell, &mut bytes);
                let is_read = read.is_ok();
                if let Err(error) = read {
                    salvage.report.add_problem(error.covering(key, Some(key)));
                }
                self.set(salvage, collection, key, is_read.then_some(&bytes), expires)?;
            }
            Operation::Delete { collection, key } => {
                if let Some(name) = self.name(salvage, collection)? {
                    self.transaction()?.delete(&name, key)?;
                    self.lost.entry(collection).or_default().remove(key);
                }
            }
            Operation::Clear {
                collection,
                lower,
                upper,
            } => {
                if let (Some(range), Some(name)) = (range_of(lower, upper), self.name(salvage, collection)?) {
                    self.transaction()?.clear(&name, range.as_key_range())?;
                    self.lost.entry(collection).or_default().clear(&range);
                }
            }
            Operation::Create { collection, name } if name.starts_with(HIDDEN) => {
                self.left_out.insert(collection);
            }
            Operation::Create { collection, name } => {
                if !self.names.contains_key(&collection) {
                    self.create(salvage, collection, Some(name))?;
                }
            }
            Operation::Codecs {
                collection,
                key_codec,
                value_codec,
            } => {
                if let Some(name) = self.name(salvage, collection)? {
                    match self.transaction()?.set_codecs(&name, key_codec, value_codec) {
                        Err(Error::CodecMismatch(_) | Error::InvalidArgument { .. }) => {}
                        result => result?,
                    }
                }
            }
            Operation::Drop { collection } => {
                if let Some(name) = self.names.remove(&collection) {
                    self.transaction()?.drop_collection(&name)?;
                    self.lost.remove(&collection);
                    salvage.report.forget_collection(&name);
                }
            }
            Operation::Rename { collection, name: to } => {
                let is_free = !self.names.values().any(|taken| taken == to);
                if let Some(from) = self.names.get(&collection).filter(|_| is_free).cloned()
                    && self.transaction()?.rename_collection(&from, to)?
                {
                    self.names.insert(collection, to.to_owned());
                    salvage.report.rename_collection(&from, to);
                }
            }
            // Like hints, indexes are left out; they are rebuilt when they are declared again.
            Operation::Indexes { .. } | Operation::Expire { .. } | Operation::End => {}
        }
        Ok(())
    }

    /// Commits the remaining records and updates the report.
    fn finish(mut self, salvage: &mut Salvage<'_>) -> Result<()> {
        self.flush()?;
        for (id, lost) in std::mem::take(&mut self.lost) {
            let name = self.names.get(&id).map(String::as_str);
            lost.report(name, &mut salvage.report);
        }
        target::count(self.database, &mut salvage.report)
    }
}

/// Converts bounds to a range; `None` if it is empty.
fn range_of(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Option<Range> {
    let after = |key: &[u8]| [key, &[0]].concat();
    let range = Range {
        lower: match lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => after(key),
        },
        upper: match upper {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        },
    };
    let is_empty = range.upper.as_ref().is_some_and(|upper| *upper <= range.lower);
    (!is_empty).then_some(range)
}
