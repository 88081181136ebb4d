//! A scan that a client has open: a cursor of the engine that is read in chunks.

use mangrove_engine::{Cursor, Direction, Error, KeyRange, Result, Tree};

use crate::protocol::{ChunkLimit, MAX_CHUNK_ITEMS, ScanFlags, ScanOptions, Writer};
use crate::range;

/// A cursor between two requests.
pub(crate) struct Scan {
    /// None where there is nothing to read.
    cursor: Option<Cursor>,
    flags: ScanFlags,
    remaining: Option<u64>,
    /// Whether the cursor stands on an item that was not sent yet.
    has_item: bool,
    /// Found after items that could still be sent.
    failed: Option<Error>,
}

impl Scan {
    /// Starts at the first item to send.
    pub(crate) fn open(tree: Option<&Tree>, range: KeyRange<'_>, options: &ScanOptions) -> Result<Self> {
        let direction = if options.flags.reverse() {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        let mut scan = Self {
            cursor: None,
            flags: options.flags,
            remaining: options.limit,
            has_item: false,
            failed: None,
        };
        if let Some(tree) = tree.filter(|_| !range::is_empty(&range)) {
            let mut cursor = tree.cursor(range, direction);
            if options.offset > 0 {
                cursor.skip(options.offset)?;
            }
            scan.has_item = cursor.advance()?;
            scan.cursor = Some(cursor);
        }
        Ok(scan)
    }

    /// Writes the next items; tells whether the scan stays open.
    pub(crate) fn chunk(&mut self, limit: ChunkLimit, out: &mut Writer) -> Result<bool> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let done_at = out.position();
        out.flag(false);
        let count_at = out.reserve_count();
        let start = out.position();
        let mut count = 0;
        while self.wants_more() && count < limit.items.min(MAX_CHUNK_ITEMS) {
            let item_at = out.position();
            if count > 0 && (item_at - start) as u64 >= limit.bytes {
                break;
            }
            if let Err(error) = self.item(out) {
                out.truncate(item_at);
                self.failed = Some(error);
                break;
            }
            count += 1;
            if let Err(error) = self.step() {
                self.failed = Some(error);
                break;
            }
        }
        if count == 0
            && let Some(error) = self.failed.take()
        {
            return Err(error);
        }
        let is_done = self.failed.is_none() && !self.wants_more();
        out.patch_flag(done_at, is_done);
        out.patch_count(count_at, count);
        Ok(!is_done || self.flags.keep())
    }

    /// Goes on at the first key at or past `key` in this direction.
    pub(crate) fn seek(&mut self, key: &[u8], limit: Option<u64>) -> Result<()> {
        self.remaining = limit;
        self.failed = None;
        if let Some(cursor) = &mut self.cursor {
            cursor.seek(key)?;
            self.has_item = cursor.advance()?;
        }
        Ok(())
    }

    fn wants_more(&self) -> bool {
        self.has_item && self.remaining != Some(0)
    }

    fn item(&self, out: &mut Writer) -> Result<()> {
        let Some(cursor) = &self.cursor else {
            return Ok(());
        };
        if self.flags.keys() {
            out.bytes(cursor.key());
        }
        if self.flags.values() {
            out.bytes_with(|into| cursor.value_into(into))?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        if let Some(remaining) = &mut self.remaining {
            *remaining -= 1;
            if *remaining == 0 {
                return Ok(());
            }
        }
        if let Some(cursor) = &mut self.cursor {
            self.has_item = cursor.advance()?;
        }
        Ok(())
    }
}
