//! Collections whose index keys functions of the program compute.

use std::ops::{Bound, ControlFlow};

use super::Database;
use crate::error::Result;
use crate::range::{Direction, KeyRange};
use crate::state::{Index, IndexDefinition, IndexKeys, IndexProgress};
use crate::transaction::{Durability, SliceRecord, WriteIndexed};

/// Records that one commit adds to an index that is being built.
const SLICE_RECORDS: usize = 1000;

type Function = Box<dyn Fn(&[u8], &[u8]) -> Vec<Vec<u8>> + Send + Sync>;

/// An index with the function that computes its keys, for [`Database::indexed_collection`].
///
/// The function gets a record's key and value, and has to return the same for the same record. A
/// change of it takes a new [version](Self::version).
///
/// ```
/// # use mangrove_engine::IndexBy;
/// // One index key per record, or none:
/// let by_country = IndexBy::new("by country", |_key, value| value.get(..2).map(<[u8]>::to_vec));
/// // Any number of them:
/// let by_word = IndexBy::multi("by word", |_key, value| {
///     value.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect::<Vec<_>>()
/// });
/// // One that no two records share, by the second version of the function:
/// let by_id = IndexBy::new("by id", |key, _value| key.last_chunk::<8>().copied()).unique().version(2);
/// # assert_eq!((by_id.definition().version, by_id.definition().unique), (2, true));
/// # let _ = (by_country, by_word);
/// ```
pub struct IndexBy {
    definition: IndexDefinition,
    function: Function,
}

impl IndexBy {
    /// An index by the key that `function` returns. Records for which it returns `None` are not in
    /// the index.
    pub fn new<K: Into<Vec<u8>>>(
        name: impl Into<String>,
        function: impl Fn(&[u8], &[u8]) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        Self::multi(name, function)
    }

    /// An index by each of the keys that `function` returns. Repeated ones count once.
    pub fn multi<K: Into<Vec<u8>>, I: IntoIterator<Item = K>>(
        name: impl Into<String>,
        function: impl Fn(&[u8], &[u8]) -> I + Send + Sync + 'static,
    ) -> Self {
        Self {
            definition: IndexDefinition {
                name: name.into(),
                version: 1,
                unique: false,
            },
            function: Box::new(move |key, value| function(key, value).into_iter().map(Into::into).collect()),
        }
    }

    /// Lets no two records have the same index key.
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.definition.unique = true;
        self
    }

    /// Sets the version of the function, which is 1 otherwise. A newer one rebuilds the index.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.definition.version = version;
        self
    }

    /// Its definition as the database stores it.
    #[must_use]
    pub fn definition(&self) -> &IndexDefinition {
        &self.definition
    }
}

impl std::fmt::Debug for IndexBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexBy")
            .field("definition", &self.definition)
            .finish_non_exhaustive()
    }
}

/// A collection with the functions of its indexes. Create it with
/// [`Database::indexed_collection`].
///
/// ```
/// # use std::{ops::ControlFlow, sync::Arc};
/// # use mangrove_engine::{Database, Direction, Durability, IndexBy, KeyRange, Options, storage::MemoryStorage};
/// # let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// let words = database.indexed_collection("words", [
///     IndexBy::new("by length", |_key, value| Some([value.len() as u8])),
/// ])?;
/// words.build(&mut |_, _| ControlFlow::Continue(()))?;
/// let mut transaction = database.begin()?;
/// words.set(&mut transaction, b"1", b"mangrove", None)?;
/// words.set(&mut transaction, b"2", b"tree", None)?;
/// transaction.commit(Durability::Strict)?;
/// // Optimistic transactions, too:
/// database.transact(Durability::Strict, 10, |transaction| words.set(transaction, b"3", b"shore", None))?;
///
/// let index = database.snapshot().index("words", "by length")?;
/// let mut cursor = index.cursor(KeyRange::all(), Direction::Forward);
/// assert!(cursor.advance()?);
/// assert_eq!((cursor.index_key(), cursor.key(), cursor.value()?), (&[4][..], &b"2"[..], b"tree".to_vec()));
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
pub struct IndexedCollection<'d> {
    database: &'d Database,
    name: String,
    functions: Vec<(u32, Function)>,
}

impl Database {
    /// Declares indexes of a collection, which is created if necessary, with the functions that
    /// compute their keys. See
    /// [`ExclusiveTransaction::declare_indexes`](crate::ExclusiveTransaction::declare_indexes).
    ///
    /// # Errors
    /// As `declare_indexes` and [`ExclusiveTransaction::commit`](crate::ExclusiveTransaction::commit).
    pub fn indexed_collection(
        &self,
        name: &str,
        indexes: impl IntoIterator<Item = IndexBy>,
    ) -> Result<IndexedCollection<'_>> {
        let parts = indexes.into_iter().map(|index| (index.definition, index.function));
        let (definitions, functions): (Vec<IndexDefinition>, Vec<Function>) = parts.unzip();
        let mut transaction = self.begin()?;
        let stored = transaction.declare_indexes(name, &definitions)?;
        transaction.commit(Durability::Strict)?;
        let id_of = |definition: &IndexDefinition| {
            let index = stored.iter().find(|index| index.definition.name == definition.name);
            index.map_or(0, |index| index.id)
        };
        let ids = definitions.iter().map(id_of);
        Ok(IndexedCollection {
            database: self,
            name: name.to_owned(),
            functions: ids.zip(functions).collect(),
        })
    }
}

impl IndexedCollection<'_> {
    /// Index keys of a record.
    #[must_use]
    pub fn keys_of(&self, key: &[u8], value: &[u8]) -> IndexKeys {
        let mut keys = IndexKeys::new();
        for (id, function) in &self.functions {
            keys.set(*id, function(key, value));
        }
        keys
    }

    /// Stores a record with its index keys; returns whether the key existed.
    ///
    /// # Errors
    /// As [`WriteIndexed::set_indexed`].
    pub fn set(
        &self,
        transaction: &mut impl WriteIndexed,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
    ) -> Result<bool> {
        let keys = self.keys_of(key, value);
        transaction.set_indexed(&self.name, key, value, expires_at, &keys)
    }

    /// Builds the indexes that are not complete, in commits of 1,000 records each; other writers
    /// take turns. An interrupted build continues where it was.
    ///
    /// Before each commit `progress` gets the number of records that the current index covers, and
    /// of all; if it breaks, the build ends there. Returns whether all indexes are complete.
    ///
    /// # Errors
    /// [`Error::NotUnique`](crate::Error::NotUnique) if the records do not allow a unique index,
    /// and the errors of reading and committing.
    pub fn build(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<bool> {
        for (id, function) in &self.functions {
            loop {
                let indexes = self.database.snapshot().indexes(&self.name);
                let index = indexes.into_iter().find(|index| index.id == *id);
                let Some(Index {
                    progress: IndexProgress::Building(from),
                    ..
                }) = index
                else {
                    break;
                };
                if self.build_slice(*id, function, from.as_deref(), progress)?.is_break() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn build_slice(
        &self,
        id: u32,
        function: &Function,
        from: Option<&[u8]>,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let snapshot = self.database.snapshot();
        let mut records = Vec::new();
        if let Some(tree) = snapshot.collection(&self.name) {
            let done = from.map_or(Ok(0), |from| tree.rank(from))?;
            if progress(done, tree.len()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let rest = KeyRange {
                lower: from.map_or(Bound::Unbounded, Bound::Excluded),
                upper: Bound::Unbounded,
            };
            let mut cursor = tree.cursor(rest, Direction::Forward);
            while records.len() < SLICE_RECORDS && cursor.advance()? {
                records.push(SliceRecord {
                    key: cursor.key().to_vec(),
                    version: cursor.version(),
                    index_keys: function(cursor.key(), &cursor.value()?),
                });
            }
        }
        let to = records.last().filter(|_| records.len() == SLICE_RECORDS);
        let to = to.map(|record| record.key.clone());
        let mut transaction = self.database.begin()?;
        transaction.index_slice(&self.name, id, from, &records, to.as_deref())?;
        let durability = match to {
            Some(_) => Durability::Relaxed,
            None => Durability::Strict,
        };
        transaction.commit(durability)?;
        Ok(ControlFlow::Continue(()))
    }
}

impl std::fmt::Debug for IndexedCollection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<u32> = self.functions.iter().map(|(id, _)| *id).collect();
        f.debug_struct("IndexedCollection")
            .field("name", &self.name)
            .field("ids", &ids)
            .finish_non_exhaustive()
    }
}
