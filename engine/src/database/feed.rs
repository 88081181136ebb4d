//! The change feed: commits in order, for followers of the database.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::memtable::LayeredCursor;
use crate::range::{Direction, KeyRange};
use crate::snapshot::Snapshot;
use crate::state::feed::{self, FEED};
use crate::state::{Collection, Shared};
use crate::state::{Commit, decode_changes};
use crate::tree::value;

/// Follows the commits of a database, in order and without a gap.
pub struct Changes {
    shared: Arc<Shared>,
    /// Version of the last commit returned.
    version: u64,
    /// Number of this listener in the in-memory feed; `None` if the database stores a feed.
    listener: Option<u64>,
    /// No chunk of an earlier version is stored any more. Without it, each look at the oldest chunk
    /// would pass over all that were dropped since the last merge.
    oldest: u64,
}

impl Changes {
    pub(super) fn new(shared: &Arc<Shared>, since: Option<u64>) -> Result<Self> {
        let mut feed = shared.feed();
        let mut snapshot = Snapshot::new(shared);
        let newest = snapshot.version();
        let version = since.unwrap_or(newest);
        let listener = if snapshot.hidden(FEED).is_some() {
            None
        } else {
            if version < newest {
                return Err(Error::TruncatedFeed { horizon: newest.into() });
            }
            Some(feed.enter(newest))
        };
        drop(feed);
        let mut changes = Self {
            shared: Arc::clone(shared),
            version,
            listener,
            oldest: 0,
        };
        loop {
            match changes.check_horizon(&snapshot) {
                Err(Error::TruncatedFeed { .. }) if since.is_none() => {}
                checked => return checked.map(|()| changes),
            }
            // Commits that were begun while nobody listened, and are invisible until a flush ends. The
            // newest of them may not be in the log, and be invisible only for those before it.
            shared.make_log_durable()?;
            snapshot = Snapshot::new(shared);
            changes.begin_at(snapshot.version());
        }
    }

    fn begin_at(&mut self, version: u64) {
        self.version = version;
        if let Some(listener) = self.listener {
            self.shared.feed().advance(listener, version);
        }
    }

    /// Version of the last commit returned: where to resume later.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the next commit; `None` if there is none yet.
    ///
    /// # Errors
    /// [`Error::TruncatedFeed`] if the feed no longer has it; storage errors and corruption.
    pub fn next_commit(&mut self) -> Result<Option<Commit>> {
        let snapshot = Snapshot::new(&self.shared);
        if self.version >= snapshot.version() {
            return Ok(None);
        }
        self.check_horizon(&snapshot)?;
        let chunks = match self.listener {
            Some(listener) => {
                let mut feed = self.shared.feed();
                let found = feed.after(self.version);
                if let Some(first) = found.first() {
                    feed.advance(listener, first.0);
                }
                found
                    .into_iter()
                    .map(|(version, bytes)| (version, bytes.to_vec()))
                    .collect()
            }
            None => self.stored_chunks(&snapshot)?,
        };
        let Some(version) = chunks.first().map(|(version, _)| *version) else {
            return Ok(None);
        };
        let mut changes = Vec::new();
        for (_, bytes) in chunks {
            decode_changes(&bytes, &mut changes)?;
        }
        self.version = version;
        Ok(Some(Commit { version, changes }))
    }

    /// Waits for the next commit, up to `timeout`.
    ///
    /// # Errors
    /// As [`next_commit`](Self::next_commit).
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Commit>> {
        self.shared.wait_for_version(self.version + 1, timeout);
        self.next_commit()
    }

    fn check_horizon(&mut self, snapshot: &Snapshot) -> Result<()> {
        let horizon = match self.listener {
            Some(_) => self.shared.feed().horizon,
            None => self.stored_horizon(snapshot)?,
        };
        if self.version < horizon {
            return Err(Error::TruncatedFeed {
                horizon: horizon.into(),
            });
        }
        Ok(())
    }

    fn stored_horizon(&mut self, snapshot: &Snapshot) -> Result<u64> {
        let first = self.stored(snapshot, self.oldest, |cursor, _| Ok(Some(version_of(cursor.key()))))?;
        // Chunks are dropped in order, and later commits have later versions.
        self.oldest = first.unwrap_or(snapshot.version() + 1);
        Ok(self.oldest - 1)
    }

    /// Runs `read` with a cursor on the first chunk of `version` or later; `None` if there is none.
    fn stored<T>(
        &self,
        snapshot: &Snapshot,
        version: u64,
        read: impl FnOnce(&mut LayeredCursor, &Collection) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let Some(collection) = snapshot.hidden(FEED) else {
            return Ok(None);
        };
        let start = feed::chunk_key(version, 0);
        let range = KeyRange {
            lower: Bound::Included(&start),
            upper: Bound::Unbounded,
        };
        let mut cursor = collection.cursor(&range, Direction::Forward);
        if cursor.advance(&collection.records(&self.shared.pager))? {
            read(&mut cursor, collection)
        } else {
            Ok(None)
        }
    }

    /// Returns all chunks of the next commit.
    fn stored_chunks(&self, snapshot: &Snapshot) -> Result<Vec<(u64, Vec<u8>)>> {
        let chunks = self.stored(snapshot, self.version + 1, |cursor, collection| {
            let version = version_of(cursor.key());
            let mut chunks = Vec::new();
            loop {
                let mut bytes = Vec::new();
                if let Some(record) = cursor.record() {
                    value::read(&self.shared.pager.blocks, collection.id, &record, &mut bytes)?;
                }
                chunks.push((version, bytes));
                if !cursor.advance(&collection.records(&self.shared.pager))? || version_of(cursor.key()) != version {
                    return Ok(Some(chunks));
                }
            }
        })?;
        Ok(chunks.unwrap_or_default())
    }
}

/// A clone continues from the same commit.
impl Clone for Changes {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            version: self.version,
            oldest: self.oldest,
            listener: self.listener.map(|_| self.shared.feed().join(self.version)),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        if let Some(listener) = self.listener {
            self.shared.feed().leave(listener);
        }
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

fn version_of(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use crate::{Database, Durability, Options};

    /// What a chunk describes is part of the commit whose version it has, in memory, replayed and merged.
    #[test]
    fn a_chunk_belongs_to_the_commit_that_it_describes() {
        let storage = Arc::new(MemoryStorage::new());
        let options = || Options {
            feed_commits: 100,
            ..Options::default()
        };
        let check = |database: &Database| {
            let snapshot = database.snapshot();
            let feed = snapshot.hidden(FEED).expect("a feed is kept");
            let start = feed::chunk_key(0, 0);
            let range = KeyRange {
                lower: Bound::Included(&start),
                upper: Bound::Unbounded,
            };
            let mut cursor = feed.cursor(&range, Direction::Forward);
            let mut count = 0;
            while cursor
                .advance(&feed.records(&database.shared.pager))
                .expect("it can be read")
            {
                let record = cursor.record().expect("it stands on one");
                assert_eq!(record.version, version_of(cursor.key()));
                count += 1;
            }
            assert!(count > 8, "{count} chunks");
        };
        let database = Database::open(Arc::<MemoryStorage>::clone(&storage), options()).expect("it is new");
        for number in 0..8_u8 {
            // Some of the commits have several chunks.
            let value = vec![number; if number % 3 == 0 { 300_000 } else { 10 }];
            let mut transaction = database.begin().expect("it is open");
            transaction.set("c", &[number], &value).expect("memory works");
            transaction.seal();
            transaction.set("d", &[number], &value).expect("memory works");
            transaction.commit(Durability::Strict).expect("memory works");
        }
        check(&database);
        drop(database);
        let database = Database::open(storage, options()).expect("it opens");
        check(&database);
        database.checkpoint().expect("memory works");
        check(&database);
    }
}
