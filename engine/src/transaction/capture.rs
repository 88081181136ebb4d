//! The change feed: what each commit changed, in a form that needs nothing else to be understood.
//!
//! A chunk is a table of names (varint count; for each a varint collection id and a varint length with the name) and then changes, encoded as
//! in log records but with all values in place. A commit is one or more chunks; the last one ends with the kind "end". Where a feed
//! is kept, its chunks are records of a hidden collection: key u64 version, u32 number of the chunk, both big-endian.

use std::ops::Bound;

use super::WriteTransaction;
use crate::error::Result;
use crate::log::Operation;
use crate::memtable::Found;
use crate::node::ValuePlace;
use crate::node::cell::put_varint;
use crate::range::KeyRange;
use crate::small_map::SmallMap;
use crate::state::expiry::HIDDEN;
use crate::state::feed::{Chunk, FEED, RETENTION, chunk_key};

const CHUNK_BYTES: usize = 256 << 10;

/// The changes of a running transaction, as far as no chunk holds them.
#[derive(Default)]
pub(crate) struct Capture {
    names: SmallMap<u32, String>,
    operations: Vec<u8>,
    number: u32,
    done: Vec<Chunk>,
    /// They are for those who listen, in memory; else for the feed that is kept.
    pub is_volatile: bool,
}

impl Capture {
    /// For those who listen only.
    pub(super) fn volatile() -> Self {
        Self {
            is_volatile: true,
            ..Self::default()
        }
    }

    fn add(&mut self, id: u32, name: &str, version: u64, operation: &Operation<'_>) {
        if name.starts_with(HIDDEN) {
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

    /// The commit ends here.
    pub(super) fn seal(&mut self, version: u64) {
        Operation::End.encode(&mut self.operations);
        self.cut(version);
        self.number = 0;
    }

    pub(super) fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.done)
    }
}

impl WriteTransaction<'_> {
    /// Takes note of a change for the feed, if there is one. `name` is the collection's name before the change.
    pub(super) fn capture(&mut self, id: u32, name: &str, operation: &Operation<'_>) {
        let version = self.state.version + 1;
        if let Some(capture) = &mut self.capture {
            capture.add(id, name, version, operation);
        }
    }

    /// Stores finished chunks in the feed that is kept.
    pub(super) fn write_chunks(&mut self) -> Result<()> {
        let Some(capture) = self.capture.as_mut().filter(|capture| !capture.is_volatile) else {
            return Ok(());
        };
        for chunk in capture.take() {
            // Like any record it goes into the log: replaying must not write, and a long chunk would.
            self.put_record(FEED, &chunk_key(chunk.version, chunk.number), &chunk.bytes, 0)?;
        }
        Ok(())
    }

    /// Drops what is older than the number of commits that are kept.
    pub(super) fn trim_feed(&mut self) -> Result<()> {
        let Some(found) = self.find(FEED, RETENTION)? else {
            return Ok(());
        };
        let record = found.record();
        let ValuePlace::Inline(bytes) = record.place else {
            return Ok(());
        };
        let kept = bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
        let end = chunk_key((self.state.version + 1).saturating_sub(kept), 0);
        let range = KeyRange {
            lower: Bound::Excluded(RETENTION),
            upper: Bound::Excluded(&end),
        };
        self.clear(FEED, range)?;
        Ok(())
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
