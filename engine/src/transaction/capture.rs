//! The change feed: the changes of each commit, in a self-contained form.
//!
//! A chunk is a table of names (varint count; for each a varint collection id and a varint length
//! with the name), followed by changes, encoded as in log records but with all values inline. A
//! commit is one or more chunks; the last one ends with the kind "end". A stored feed has
//! its chunks as records of a hidden collection: key u64 version, u32 number of the chunk, both
//! big-endian.

use std::ops::Bound;

use super::ExclusiveTransaction;
use crate::error::Result;
use crate::log::Operation;
use crate::memtable::Found;
use crate::node::ValuePlace;
use crate::node::cell::put_varint;
use crate::range::KeyRange;
use crate::small_map::SmallMap;
use crate::state::expiry::HIDDEN;
use crate::state::feed::{Chunk, FEED, PRIVATE, RETENTION, chunk_key};

const CHUNK_BYTES: usize = 256 << 10;

/// The changes of a running transaction: finished chunks, and changes that are in no chunk yet.
#[derive(Default)]
pub(crate) struct Capture {
    names: SmallMap<u32, String>,
    operations: Vec<u8>,
    number: u32,
    done: Vec<Chunk>,
    /// The changes are for listeners, in memory, rather than for a stored feed.
    pub is_volatile: bool,
}

impl Capture {
    /// Creates a capture for listeners only.
    pub(super) fn volatile() -> Self {
        Self {
            is_volatile: true,
            ..Self::default()
        }
    }

    fn add(&mut self, id: u32, name: &str, version: u64, operation: &Operation<'_>) {
        if name.starts_with(HIDDEN) || name.starts_with(PRIVATE) {
            return;
        }
        self.names.get_or_insert_with(id, || name.to_owned());
        operation.encode(&mut self.operations);
        if self.operations.len() > CHUNK_BYTES {
            self.cut(version);
        }
    }

    fn cut(&mut self, version: u64) {
        let mut bytes = Vec::with_capacity(self.operations.len() + 32);
        put_varint(&mut bytes, self.names.len() as u64);
        for (id, name) in std::mem::take(&mut self.names) {
            put_varint(&mut bytes, u64::from(id));
            put_varint(&mut bytes, name.len() as u64);
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.append(&mut self.operations);
        self.done.push(Chunk {
            version,
            number: self.number,
            bytes,
        });
        self.number += 1;
    }

    /// Ends the commit.
    pub(super) fn seal(&mut self, version: u64) {
        Operation::End.encode(&mut self.operations);
        self.cut(version);
        self.number = 0;
    }

    pub(super) fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.done)
    }
}

impl ExclusiveTransaction<'_> {
    /// Captures a change if there is a feed. `name` is the collection's name before the change.
    pub(super) fn capture(&mut self, id: u32, name: &str, operation: &Operation<'_>) {
        let version = self.state.version + 1;
        let operation = match *operation {
            Operation::Delete { collection, key } if self.is_purge => Operation::Expire { collection, key },
            other => other,
        };
        if let Some(capture) = &mut self.capture {
            capture.add(id, name, version, &operation);
        }
    }

    /// Stores finished chunks in the feed, if one is stored.
    pub(super) fn write_chunks(&mut self) -> Result<()> {
        let Some(capture) = self.capture.as_mut().filter(|capture| !capture.is_volatile) else {
            return Ok(());
        };
        for chunk in capture.take() {
            // Logged like any record, not captured again by replay: replay must not write, and a
            // long chunk would.
            self.put_record(FEED, &chunk_key(chunk.version, chunk.number), &chunk.bytes, 0)?;
        }
        Ok(())
    }

    /// Drops commits in excess of the number to keep. Returns the version of the oldest commit that
    /// may be left, which the writer remembers once this commit is made: what was dropped since the
    /// last merge would be passed over each time.
    pub(super) fn trim_feed(&mut self) -> Result<u64> {
        let oldest = self.writer.oldest_in_feed;
        let Some(found) = self.find(FEED, RETENTION)? else {
            return Ok(oldest);
        };
        let record = found.record();
        let ValuePlace::Inline(bytes) = record.place else {
            return Ok(oldest);
        };
        let kept = bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        let end = (self.state.version + 1).saturating_sub(kept);
        if end <= oldest {
            return Ok(oldest);
        }
        let range = KeyRange {
            lower: Bound::Included(&chunk_key(oldest, 0)),
            upper: Bound::Excluded(&chunk_key(end, 0)),
        };
        self.clear(FEED, range)?;
        Ok(end)
    }

    /// Keeps a feed of the last `commits` commits from now on.
    pub(crate) fn keep_feed(&mut self, commits: u64) -> Result<()> {
        let kept = self.find(FEED, RETENTION)?;
        let is_kept = |found: Found<'_>| match found.record().place {
            ValuePlace::Inline(bytes) => bytes == commits.to_le_bytes(),
            ValuePlace::OutOfLine(_) => false,
        };
        if kept.is_some_and(is_kept) {
            return Ok(());
        }
        self.create_unchecked(FEED)?;
        self.put_record(FEED, RETENTION, &commits.to_le_bytes(), 0)?;
        self.capture = Some(Capture::default());
        Ok(())
    }
}
