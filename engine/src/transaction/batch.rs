//! A list of changes applied as one commit.

/// One change of a batch.
#[derive(Clone, Debug)]
pub struct BatchOperation {
    /// Name of the collection.
    pub collection: String,
    /// Key of the record.
    pub key: Vec<u8>,
    /// Its value; `None` removes the record.
    pub value: Option<Vec<u8>>,
}

/// Changes to any collections, applied in order, all or nothing.
///
/// ```
/// # use std::sync::Arc;
/// # use mangrove_engine::{Database, Durability, Options, WriteBatch, storage::MemoryStorage};
/// let database = Database::open(Arc::new(MemoryStorage::new()), Options::default())?;
/// let mut batch = WriteBatch::new();
/// batch.set("users", b"ada", b"1815").delete("guests", b"ada");
/// let info = database.write(&batch, Durability::Strict)?;
/// assert_eq!(info.version, 1);
/// # Ok::<(), mangrove_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    operations: Vec<BatchOperation>,
}

impl WriteBatch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a record.
    pub fn set(&mut self, collection: &str, key: &[u8], value: &[u8]) -> &mut Self {
        self.operations.push(BatchOperation {
            collection: collection.to_owned(),
            key: key.to_vec(),
            value: Some(value.to_vec()),
        });
        self
    }

    /// Removes a record.
    pub fn delete(&mut self, collection: &str, key: &[u8]) -> &mut Self {
        self.operations.push(BatchOperation {
            collection: collection.to_owned(),
            key: key.to_vec(),
            value: None,
        });
        self
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The changes, in order.
    #[must_use]
    pub fn operations(&self) -> &[BatchOperation] {
        &self.operations
    }
}
