//! The new database, written in commits of bounded size.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::FILES;
use super::control::{Control, Flow, Stop};
use super::holes::Range;
use super::report::{LostRecord, MAX_LOST, RecoverPhase, RecoverReport};
use super::tree::Sink;
use crate::database::{Database, Options};
use crate::error::Result;
use crate::range::KeyRange;
use crate::state::expiry::HINT_BYTES;
use crate::state::{Collection, MAX_CODEC_BYTES};
use crate::storage::Storage;
use crate::transaction::{Durability, ExclusiveTransaction, ReadWrite};

/// Bytes and leaves after which a transaction is committed. The new database then writes out what
/// does not fit in its cache.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_LEAVES: usize = 64;
/// Limit on the bytes of lost keys kept.
const MAX_LOST_BYTES: usize = 1 << 20;

/// Creates the new database.
pub(super) fn create(target: &Arc<dyn Storage>, mut options: Options) -> Result<Database> {
    options.create = true;
    options.exclusive = true;
    options.read_only = false;
    // A feed would contain only the recovery.
    options.feed_commits = 0;
    Database::open(Arc::clone(target), options)
}

/// Removes the new database.
pub(super) fn clear(target: &dyn Storage) -> Result<()> {
    FILES.iter().try_for_each(|name| target.remove(name))
}

/// Creates a collection with the codecs of the old one.
pub(super) fn create_collection(database: &Database, name: &str, collection: &Collection) -> Result<()> {
    let known = |codec: &String| {
        let codec = if codec.len() <= MAX_CODEC_BYTES { codec } else { "" };
        codec.to_owned()
    };
    let mut transaction = database.begin()?;
    transaction.set_codecs(name, &known(&collection.key_codec), &known(&collection.value_codec))?;
    transaction.commit(Durability::None)?;
    Ok(())
}

/// Updates the record counts in the report from the new database.
pub(super) fn count(database: &Database, report: &mut RecoverReport) -> Result<()> {
    let snapshot = database.snapshot();
    for collection in &mut report.collections {
        let tree = snapshot.collection(&collection.name);
        collection.count = tree.map_or(0, |tree| tree.with_expired().len());
    }
    for range in &mut report.damaged_ranges {
        let tree = range.collection.as_ref().and_then(|name| snapshot.collection(name));
        if let Some(tree) = tree {
            range.recovered = tree.with_expired().count(KeyRange {
                lower: Bound::Included(&range.lower),
                upper: range.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            })?;
        }
    }
    Ok(())
}

/// Makes the new database durable, verifies and closes it.
pub(super) fn finish(database: Database, control: &mut Control<'_>) -> Flow<()> {
    control.enter(RecoverPhase::Verifying)?;
    database.checkpoint()?;
    if let Some(problem) = database.verify()?.problems.into_iter().next() {
        return Err(Stop::Failed(problem));
    }
    database.close()?;
    Ok(())
}

/// Bytes that a key needs: a record that expires has a hint, which is longer than the key.
pub(super) fn stored_key_bytes(key: &[u8], expires: u64) -> usize {
    key.len() + if expires == 0 { 0 } else { HINT_BYTES }
}

/// Keys of lost records. A newer leaf found later may restore them.
#[derive(Default)]
pub(super) struct LostKeys {
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
    more: u64,
}

impl LostKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.more == 0
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        if self.keys.contains(key) {
            return;
        }
        if self.keys.len() >= MAX_LOST || self.bytes + key.len() > MAX_LOST_BYTES {
            self.more += 1;
            return;
        }
        self.bytes += key.len();
        self.keys.insert(key.to_vec());
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.keys.remove(key) {
            self.bytes -= key.len();
        }
    }

    pub(super) fn clear(&mut self, range: &Range) {
        let range = range.as_key_range();
        let covered: Vec<_> = self
            .keys
            .range::<[u8], _>((range.lower, range.upper))
            .cloned()
            .collect();
        for key in covered {
            self.remove(&key);
        }
    }

    pub(super) fn report(self, collection: Option<&str>, report: &mut RecoverReport) {
        report.lost_record_count += self.keys.len() as u64 + self.more;
        let left = MAX_LOST.saturating_sub(report.lost_records.len());
        let records = self.keys.into_iter().take(left).map(|key| LostRecord {
            collection: collection.map(str::to_owned),
            key,
        });
        report.lost_records.extend(records);
    }
}

impl Range {
    pub(super) fn as_key_range(&self) -> KeyRange<'_> {
        KeyRange {
            lower: Bound::Included(&self.lower),
            upper: self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        }
    }
}

/// Writes one collection.
pub(super) struct Writer<'a> {
    database: &'a Database,
    name: &'a str,
    transaction: Option<ExclusiveTransaction<'a>>,
    bytes: usize,
    leaves: usize,
    lost: LostKeys,
}

impl<'a> Writer<'a> {
    /// Creates a writer for the existing collection `name`.
    pub(super) fn new(database: &'a Database, name: &'a str) -> Self {
        Self {
            database,
            name,
            transaction: None,
            bytes: 0,
            leaves: 0,
            lost: LostKeys::default(),
        }
    }

    fn transaction(&mut self) -> Result<&mut ExclusiveTransaction<'a>> {
        if self.transaction.is_none() {
            self.transaction = Some(self.database.begin()?);
        }
        Ok(self.transaction.as_mut().expect("it was begun just now"))
    }

    /// Commits the remaining records; returns the keys that were lost.
    pub(super) fn finish(mut self) -> Result<LostKeys> {
        self.flush()?;
        Ok(self.lost)
    }

    /// Commits the current transaction. Nothing has to be durable before the end of the recovery.
    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        self.leaves = 0;
        if let Some(transaction) = self.transaction.take() {
            transaction.commit(Durability::None)?;
        }
        Ok(())
    }
}

impl Sink for Writer<'_> {
    fn clear(&mut self, range: &Range) -> Result<()> {
        let name = self.name;
        self.transaction()?.clear(name, range.as_key_range())?;
        self.lost.clear(range);
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: u64, _generation: u64) -> Result<()> {
        // No database writes such a key, but a hostile block can contain one.
        if stored_key_bytes(key, expires) > self.database.max_key_bytes() {
            self.lose(key);
            return Ok(());
        }
        let name = self.name;
        let expires_at = (expires != 0).then_some(expires);
        self.transaction()?.set_until(name, key, value, expires_at)?;
        self.lost.remove(key);
        self.bytes += key.len() + value.len();
        if self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn lose(&mut self, key: &[u8]) {
        self.lost.add(key);
    }

    fn end_leaf(&mut self) -> Result<()> {
        self.leaves += 1;
        if self.leaves >= BATCH_LEAVES {
            self.flush()?;
        }
        Ok(())
    }
}
