//! Bulk load: many records at once, in any order, into packed nodes.

use std::ops::ControlFlow;

use crate::block::Pointer;
use crate::error::{Error, Result};
use crate::node::cell::MAX_VALUE_BYTES;
use crate::range::KeyRange;
use crate::transaction::WriteTransaction;
use crate::tree::load::{Counts, Duplicates, Load};

/// Records between two looks at the memory that the transaction takes.
const STEP_RECORDS: usize = 32;
/// Records between two calls of the callback.
const PROGRESS_RECORDS: u64 = 1024;
const MIN_MEMORY_BYTES: usize = 4096;

/// How to load. Default: into what is there, duplicates are an error, memory is a quarter of the cache, no callback.
#[derive(Default)]
pub struct BulkLoad<'a> {
    /// The collection's former records are dropped first. Else the new ones join them, and replace those with the same key.
    pub replace: bool,
    /// What becomes of records of the input that have the same key.
    pub duplicates: Duplicates,
    /// Memory for collecting and sorting, in bytes; `None`: a quarter of the cache. What does not fit is sorted in the data file.
    pub memory_bytes: Option<usize>,
    /// Called now and then; `Break` ends the load.
    pub progress: Option<&'a mut dyn FnMut(BulkProgress) -> ControlFlow<()>>,
}

/// What a bulk load is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkPhase {
    /// It takes records. If they come in order it writes them too.
    Reading,
    /// It merges sorted runs, because they are too many to be merged at once.
    Sorting,
    /// It writes records that it had to sort.
    Writing,
}

/// How far a bulk load is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkProgress {
    /// What it is doing.
    pub phase: BulkPhase,
    /// Records taken in this phase. Sorting may take each several times; when a tree is made anew, writing counts the records it had too.
    pub records: u64,
}

/// What a bulk load did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct BulkReport {
    /// Records taken from the input.
    pub records: u64,
    /// Records of the input that are in the collection now.
    pub written: u64,
    /// Those of them that replaced a record the collection had.
    pub replaced: u64,
    /// Records that were dropped because the input had their key more than once.
    pub duplicates: u64,
    /// Sorted runs that the data file had to hold for a while; 0 if the input was sorted or fitted in memory.
    pub runs: u64,
    /// The callback ended the load. The transaction can only be dropped.
    pub cancelled: bool,
}

impl WriteTransaction<'_> {
    /// Stores many records, creating the collection if need be. Sorted input behind the collection's last key is the fastest: it is written
    /// once, to packed nodes. Other input is sorted in bounded memory, with the free space of the data file.
    ///
    /// The commit will be a checkpoint, whatever its durability, unless the load is small. Besides the cache it takes about twice
    /// `memory_bytes`, and some bytes for each block that it writes.
    ///
    /// # Errors
    /// Those of the input, of [`set`](Self::set), and [`Error::InvalidArgument`] for a key that comes twice under
    /// [`Duplicates::Error`]. All end the transaction.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mangrove_engine::{BulkLoad, Database, Durability, Options, storage::MemoryStorage};
    /// let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
    /// let mut transaction = database.begin()?;
    /// let squares = (0..1000_u64).map(|number| Ok((number.to_be_bytes().to_vec(), (number * number).to_le_bytes().to_vec())));
    /// let report = transaction.bulk_load("squares", squares, BulkLoad::default())?;
    /// transaction.commit(Durability::Strict)?;
    /// assert_eq!(report.written, 1000);
    /// # Ok::<(), mangrove_engine::Error>(())
    /// ```
    pub fn bulk_load(
        &mut self,
        collection: &str,
        records: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
        mut options: BulkLoad<'_>,
    ) -> Result<BulkReport> {
        if self.capture.as_ref().is_some_and(|capture| !capture.is_volatile) {
            return Err(Error::InvalidArgument {
                what: "a database that keeps a feed takes no bulk load, which the feed could not tell; store the records one by one"
                    .to_owned(),
            });
        }
        self.create(collection)?;
        // Those who follow in memory are told that they missed something.
        self.capture = None;
        self.draft.version = self.state.version + 1;
        self.record = None;
        self.changed = true;
        self.stores = true;
        if options.replace {
            self.edit(collection, |editor| editor.clear(&KeyRange::all()))?;
        }
        let root = self.state.collections.get(collection).and_then(|entry| entry.root);
        if root.is_some_and(|root| matches!(root.pointer, Pointer::Memory(_)))
            && let Err(error) = self.spill()
        {
            self.failed = Some(error.clone());
            return Err(error);
        }
        let memory_bytes = options.memory_bytes.unwrap_or(self.shared.config.cache_bytes / 4);
        let mut load = Load::new(options.duplicates, memory_bytes.max(MIN_MEMORY_BYTES));
        let mut records = records.fuse();
        let mut progress = |phase, records| {
            let callback = options.progress.as_mut().filter(|_| records % PROGRESS_RECORDS == 0);
            callback.map_or(ControlFlow::Continue(()), |callback| {
                callback(BulkProgress { phase, records })
            })
        };
        let shared = self.shared;
        let mut taken = 0;
        let read = self.steps(collection, |editor| {
            let Some(record) = records.next() else {
                let mut sorted = 0;
                let mut tick = || {
                    sorted += 1;
                    progress(BulkPhase::Sorting, sorted)
                };
                let end = load.end_input(editor, &mut tick)?;
                return Ok(ControlFlow::Break(end.is_continue()));
            };
            let (key, value) = record?;
            shared.check_key(&key)?;
            if value.len() > MAX_VALUE_BYTES {
                return Err(Error::ValueTooLarge {
                    len_bytes: value.len(),
                    max_bytes: MAX_VALUE_BYTES,
                });
            }
            load.add(editor, key, &value)?;
            taken += 1;
            Ok(progress(BulkPhase::Reading, taken).map_break(|()| false))
        })?;
        let mut put = 0;
        let is_complete = read
            && self.steps(collection, |editor| {
                if !load.put_next(editor)? {
                    return Ok(ControlFlow::Break(true));
                }
                put += 1;
                Ok(progress(BulkPhase::Writing, put).map_break(|()| false))
            })?;
        if !is_complete {
            self.failed = Some(Error::InvalidArgument {
                what: "the bulk load was cancelled; the transaction can only be dropped".to_owned(),
            });
        }
        Ok(report(&load.counts, !is_complete))
    }

    /// Repeats a change until it breaks, and spills the draft's pages in between if there are many.
    fn steps(
        &mut self,
        collection: &str,
        mut change: impl FnMut(&mut crate::tree::Editor<'_>) -> Result<ControlFlow<bool>>,
    ) -> Result<bool> {
        loop {
            let result = self.edit(collection, |editor| {
                for _ in 0..STEP_RECORDS {
                    if let ControlFlow::Break(result) = change(editor)? {
                        return Ok(Some(result));
                    }
                }
                Ok(None)
            })?;
            self.spill_if_large()?;
            if let Some(result) = result.flatten() {
                return Ok(result);
            }
        }
    }
}

fn report(counts: &Counts, cancelled: bool) -> BulkReport {
    BulkReport {
        records: counts.records,
        written: counts.written,
        replaced: counts.replaced,
        duplicates: counts.duplicates,
        runs: counts.runs,
        cancelled,
    }
}

impl std::fmt::Debug for BulkLoad<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkLoad")
            .field("replace", &self.replace)
            .field("duplicates", &self.duplicates)
            .field("memory_bytes", &self.memory_bytes)
            .finish_non_exhaustive()
    }
}
