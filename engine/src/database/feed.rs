//! The feed: commits in order, for those who follow them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::{Shared, Snapshot};
use crate::error::{Error, Result};
use crate::log::{Operation, Operations};
use crate::node::cell::get_varint;
use crate::transaction::capture::{self, Chunk, FEED};
use crate::transaction::expiry::HIDDEN;
use crate::tree::cursor::TreeCursor;
use crate::tree::{Direction, KeyRange, value};

/// Memory for changes that those who listen have not taken yet.
const MAX_BYTES: usize = 32 << 20;

/// One change of a commit. Names are those at the time of the change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A record was stored.
    Set {
        /// Name of the collection.
        collection: String,
        /// Key of the record.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// When it expires, in milliseconds since 1970.
        expires_at: Option<u64>,
    },
    /// A record was removed.
    Delete {
        /// Name of the collection.
        collection: String,
        /// Key of the record.
        key: Vec<u8>,
    },
    /// All records of a range were removed.
    Clear {
        /// Name of the collection.
        collection: String,
        /// Where the range begins.
        lower: Bound<Vec<u8>>,
        /// Where it ends.
        upper: Bound<Vec<u8>>,
    },
    /// A collection was created.
    Create {
        /// Its name.
        collection: String,
    },
    /// A collection got its codec ids.
    Codecs {
        /// Its name.
        collection: String,
        /// Id of the key codec.
        key_codec: String,
        /// Id of the value codec.
        value_codec: String,
    },
    /// A collection was removed with all its records.
    Drop {
        /// Its name.
        collection: String,
    },
    /// A collection got another name.
    Rename {
        /// Its name before.
        from: String,
        /// Its name from now on.
        to: String,
    },
}

/// What one commit changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Commit {
    /// Its version.
    pub version: u64,
    /// Its changes in order.
    pub changes: Vec<Change>,
}

/// Follows the commits of a database, in order and without a gap.
pub struct Changes {
    shared: Arc<Shared>,
    /// Version of the last commit that was given out.
    version: u64,
    /// Number among those who listen in memory; `None` where a feed is kept.
    listener: Option<u64>,
}

impl Changes {
    pub(super) fn new(shared: &Arc<Shared>, since: Option<u64>) -> Result<Self> {
        let mut feed = shared.feed();
        let snapshot = Snapshot::new(shared);
        let newest = snapshot.version();
        let version = since.unwrap_or(newest);
        let listener = if snapshot.hidden(FEED).is_some() {
            None
        } else {
            if version < newest {
                return Err(Error::TruncatedFeed { horizon: newest });
            }
            Some(feed.enter(newest))
        };
        drop(feed);
        let changes = Self {
            shared: Arc::clone(shared),
            version,
            listener,
        };
        changes.check_horizon(&snapshot)?;
        Ok(changes)
    }

    /// Version of the last commit that was given out: what to go on from another time.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The next commit; `None` if there is none yet.
    ///
    /// # Errors
    /// [`Error::TruncatedFeed`] if it is no longer kept; storage errors and corruption.
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
            decode(&bytes, &mut changes)?;
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

    fn check_horizon(&self, snapshot: &Snapshot) -> Result<()> {
        let horizon = match self.listener {
            Some(_) => self.shared.feed().horizon,
            None => self.stored_horizon(snapshot)?,
        };
        if self.version < horizon {
            return Err(Error::TruncatedFeed { horizon });
        }
        Ok(())
    }

    fn stored_horizon(&self, snapshot: &Snapshot) -> Result<u64> {
        let first = self.stored(snapshot, 0, |cursor, _| Ok(Some(version_of(cursor.key()))))?;
        Ok(first.map_or(snapshot.version(), |version| version - 1))
    }

    /// Runs `read` with a cursor on the first chunk of a version or later; `None` if there is none.
    fn stored<T>(
        &self,
        snapshot: &Snapshot,
        version: u64,
        read: impl FnOnce(&mut TreeCursor, u32) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let Some((owner, root)) = snapshot.hidden(FEED) else {
            return Ok(None);
        };
        let start = capture::chunk_key(version, 0);
        let range = KeyRange {
            lower: Bound::Included(&start),
            upper: Bound::Unbounded,
        };
        let mut cursor = TreeCursor::new(root, owner, &range, Direction::Forward);
        if cursor.advance(&self.shared.pager)? {
            read(&mut cursor, owner)
        } else {
            Ok(None)
        }
    }

    /// All chunks of the next commit.
    fn stored_chunks(&self, snapshot: &Snapshot) -> Result<Vec<(u64, Vec<u8>)>> {
        let chunks = self.stored(snapshot, self.version + 1, |cursor, owner| {
            let version = version_of(cursor.key());
            let mut chunks = Vec::new();
            loop {
                let mut bytes = Vec::new();
                if let Some(record) = cursor.record() {
                    value::read(&self.shared.pager.blocks, owner, &record, &mut bytes)?;
                }
                chunks.push((version, bytes));
                if !cursor.advance(&self.shared.pager)? || version_of(cursor.key()) != version {
                    return Ok(Some(chunks));
                }
            }
        })?;
        Ok(chunks.unwrap_or_default())
    }
}

/// Goes on from the same commit.
impl Clone for Changes {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            version: self.version,
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

/// Appends the changes of a chunk.
fn decode(bytes: &[u8], changes: &mut Vec<Change>) -> Result<()> {
    let malformed = || Error::corrupt("a chunk of the feed is malformed");
    let mut names = BTreeMap::new();
    let mut rest = bytes;
    let (count, taken) = get_varint(rest).ok_or_else(malformed)?;
    rest = &rest[taken..];
    let mut table = Vec::new();
    for _ in 0..count {
        let (id, taken) = get_varint(rest).ok_or_else(malformed)?;
        let (len, more) = get_varint(&rest[taken..]).ok_or_else(malformed)?;
        let start = taken + more;
        let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len));
        let name = end.and_then(|end| rest.get(start..end)).ok_or_else(malformed)?;
        table.push((id, String::from_utf8(name.to_vec()).map_err(|_| malformed())?));
        rest = &rest[start + name.len()..];
    }
    names.extend(table);
    for operation in Operations::new(rest) {
        if let Some(change) = to_change(&operation?, &mut names) {
            changes.push(change);
        }
    }
    Ok(())
}

fn to_change(operation: &Operation<'_>, names: &mut BTreeMap<u64, String>) -> Option<Change> {
    let name = |names: &BTreeMap<u64, String>, id: u32| {
        let name = names.get(&u64::from(id)).cloned().unwrap_or_default();
        (!name.starts_with(HIDDEN)).then_some(name)
    };
    Some(match *operation {
        Operation::Set {
            collection,
            key,
            value,
            expires,
        } => Change::Set {
            collection: name(names, collection)?,
            key: key.to_vec(),
            value: value.to_vec(),
            expires_at: (expires != 0).then_some(expires),
        },
        Operation::Delete { collection, key } => Change::Delete {
            collection: name(names, collection)?,
            key: key.to_vec(),
        },
        Operation::Clear {
            collection,
            lower,
            upper,
        } => Change::Clear {
            collection: name(names, collection)?,
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
        },
        Operation::Create { collection, .. } => Change::Create {
            collection: name(names, collection)?,
        },
        Operation::Codecs {
            collection,
            key_codec,
            value_codec,
        } => Change::Codecs {
            collection: name(names, collection)?,
            key_codec: key_codec.to_owned(),
            value_codec: value_codec.to_owned(),
        },
        Operation::Drop { collection } => Change::Drop {
            collection: name(names, collection)?,
        },
        Operation::Rename { collection, name: to } => {
            let from = name(names, collection)?;
            names.insert(u64::from(collection), to.to_owned());
            Change::Rename {
                from,
                to: to.to_owned(),
            }
        }
        Operation::SetOutOfLine { .. } | Operation::End => return None,
    })
}

/// Changes in memory for those who listen where no feed is kept.
#[derive(Default)]
pub(crate) struct Feed {
    chunks: VecDeque<(u64, Arc<[u8]>)>,
    bytes: usize,
    /// What each listener has taken already.
    listeners: BTreeMap<u64, u64>,
    /// How many listeners have taken everything up to a version.
    taken: BTreeMap<u64, usize>,
    next: u64,
    /// Everything after this version is here.
    horizon: u64,
}

impl Feed {
    /// Whether anybody listens.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.listeners.is_empty()
    }

    fn enter(&mut self, version: u64) -> u64 {
        if self.listeners.is_empty() {
            self.horizon = version;
        }
        self.join(version)
    }

    /// As `enter`, at the side of one who has taken as much.
    fn join(&mut self, version: u64) -> u64 {
        self.next += 1;
        self.listeners.insert(self.next, version);
        *self.taken.entry(version).or_default() += 1;
        self.next
    }

    fn leave(&mut self, listener: u64) {
        if let Some(version) = self.listeners.remove(&listener) {
            self.depart(version);
        }
    }

    fn advance(&mut self, listener: u64, version: u64) {
        *self.taken.entry(version).or_default() += 1;
        if let Some(before) = self.listeners.insert(listener, version) {
            self.depart(before);
        }
    }

    /// A listener has taken more than up to `version`, or is gone; what all have taken goes.
    fn depart(&mut self, version: u64) {
        let Some(count) = self.taken.get_mut(&version) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.taken.remove(&version);
        let taken = self.taken.first_key_value().map_or(u64::MAX, |(version, _)| *version);
        while self.chunks.front().is_some_and(|(version, _)| *version <= taken) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((version, bytes)) = self.chunks.pop_front() {
            self.bytes -= bytes.len();
            self.horizon = self.horizon.max(version);
        }
    }

    /// All chunks of the first commit after `version`.
    fn after(&self, version: u64) -> Vec<(u64, Arc<[u8]>)> {
        let start = self.chunks.partition_point(|(other, _)| *other <= version);
        let Some((first, _)) = self.chunks.get(start) else {
            return Vec::new();
        };
        let commit = self.chunks.range(start..).take_while(|(other, _)| other == first);
        commit.cloned().collect()
    }

    /// Takes note of commits that are newer than all before. `None`: nobody listened when the transaction began.
    pub(crate) fn push(&mut self, version: u64, chunks: Option<Vec<Chunk>>) {
        if !self.is_wanted() {
            return;
        }
        let Some(chunks) = chunks else {
            self.horizon = version;
            self.chunks.clear();
            self.bytes = 0;
            return;
        };
        for chunk in chunks {
            self.bytes += chunk.bytes.len();
            self.chunks.push_back((chunk.version, chunk.bytes.into()));
        }
        while self.bytes > MAX_BYTES {
            // A commit goes as a whole.
            let Some(oldest) = self.chunks.front().map(|(version, _)| *version) else {
                break;
            };
            while self.chunks.front().is_some_and(|(version, _)| *version == oldest) {
                self.drop_oldest();
            }
        }
    }
}
