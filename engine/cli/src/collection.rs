//! Collections as the tool sees them: a name and its stored codecs.

use mangrove_engine::{Database, ExclusiveTransaction, Snapshot, SnapshotCollection};
use serde_json::Value;

use crate::codec::{DEFAULT_CODECS, KeyCodec, Raw, ValueCodec, parse};
use crate::failure::{Failure, Result};

/// The codecs of a collection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codecs {
    pub(crate) key: KeyCodec,
    pub(crate) value: ValueCodec,
}

impl Codecs {
    pub(crate) fn of(key: &str, value: &str, raw: Option<Raw>) -> Self {
        Self {
            key: KeyCodec::of(key, raw),
            value: ValueCodec::of(value, raw),
        }
    }

    /// Returns the codecs that a collection has, or will have once it is created.
    pub(crate) fn stored(database: &Database, collection: &str, raw: Option<Raw>) -> Self {
        let info = database.collections().into_iter().find(|info| info.name == collection);
        let (key, value) = info
            .as_ref()
            .map_or(DEFAULT_CODECS, |info| (&info.key_codec, &info.value_codec));
        Self::of(key, value, raw)
    }

    pub(crate) fn key(self, json: &str) -> Result<Vec<u8>> {
        let key = parse(json).and_then(|json| self.key.encode(&json));
        key.map_err(|failure| failure.within("the key"))
    }

    pub(crate) fn value(self, json: &str) -> Result<Vec<u8>> {
        self.value.encode(json).map_err(|failure| failure.within("the value"))
    }

    /// Returns `"key":…,"value":…` of a record, or the key alone.
    pub(crate) fn record(self, key: &[u8], value: Option<&[u8]>) -> Result<String> {
        let key: Value = self.key.decode(key)?;
        match value {
            None => Ok(format!("\"key\":{key}")),
            Some(value) => Ok(format!("\"key\":{key},\"value\":{}", self.value.decode(value)?)),
        }
    }
}

/// Gives a collection that does not exist yet the codecs of the JavaScript package.
pub(crate) fn create(transaction: &mut ExclusiveTransaction<'_>, database: &Database, collection: &str) -> Result<()> {
    if !database.collections().iter().any(|info| info.name == collection) {
        transaction.set_codecs(collection, DEFAULT_CODECS.0, DEFAULT_CODECS.1)?;
    }
    Ok(())
}

/// Returns a collection of a snapshot. The default collection is valid in every database, even if
/// nothing was ever written to it.
pub(crate) fn tree(snapshot: &Snapshot, collection: &str) -> Result<Option<SnapshotCollection>> {
    match snapshot.collection(collection) {
        None if !collection.is_empty() => Err(Failure::not_found(format!("there is no collection {collection:?}"))),
        tree => Ok(tree),
    }
}
