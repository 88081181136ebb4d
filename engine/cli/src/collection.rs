//! Collections as the tool sees them.

use mangrove_engine::{Snapshot, SnapshotCollection};

use crate::codec::Raw;
use crate::failure::{Failure, Result};

/// Returns `"key":…,"value":…` of a record, or the key alone.
pub(crate) fn record(raw: Raw, key: &[u8], value: Option<&[u8]>) -> String {
    let key = raw.show(key);
    match value {
        None => format!("\"key\":{key}"),
        Some(value) => format!("\"key\":{key},\"value\":{}", raw.show(value)),
    }
}

/// Returns a collection of a snapshot. The default collection is valid in every database, even if
/// nothing was ever written to it.
pub(crate) fn tree(snapshot: &Snapshot, collection: &str) -> Result<Option<SnapshotCollection>> {
    match snapshot.collection(collection) {
        None if !collection.is_empty() => Err(Failure::not_found(format!("there is no collection {collection:?}"))),
        tree => Ok(tree),
    }
}
