//! A scan that a client has open: a cursor of the engine that is read in chunks.

use mangrove_engine::{Cursor, Direction, Error, KeyRange, Result, Transaction, TransactionScan};

use crate::protocol::{ChunkLimit, MAX_CHUNK_ITEMS, ScanFlags, ScanOptions, Writer};
use crate::range;
use crate::state::Source;

/// What moves over the items.
enum Items {
    /// There are none.
    Nothing,
    Committed(Box<Cursor>),
    Transaction(Box<TransactionScan>),
}

/// A cursor between two requests.
pub(crate) struct Scan {
    items: Items,
    /// Number of the transaction that it reads, if it is one.
    pub(crate) transaction: u64,
    flags: ScanFlags,
    remaining: Option<u64>,
    /// Whether the cursor stands on an item that was not sent yet.
    has_item: bool,
    /// Found after items that could still be sent.
    failed: Option<Error>,
}

impl Items {
    fn advance(&mut self, transaction: Option<&Transaction>) -> Result<bool> {
        match self {
            Self::Nothing => Ok(false),
            Self::Committed(cursor) => cursor.advance(),
            Self::Transaction(scan) => scan.advance(transaction.ok_or(Error::Closed)?),
        }
    }
}

impl Scan {
    /// Starts at the first item to send. `transaction` is the number of the one that `source` may be.
    pub(crate) fn open(
        source: &Source<'_>,
        transaction: u64,
        range: KeyRange<'_>,
        options: &ScanOptions,
    ) -> Result<Self> {
        let direction = if options.flags.reverse() {
            Direction::Reverse
        } else {
            Direction::Forward
        };
        let mut scan = Self {
            items: Items::Nothing,
            transaction: 0,
            flags: options.flags,
            remaining: options.limit,
            has_item: false,
            failed: None,
        };
        match source {
            _ if range::is_empty(&range) => return Ok(scan),
            Source::Committed(Some(tree)) => {
                let mut cursor = tree.cursor(range, direction);
                if options.offset > 0 {
                    cursor.skip(options.offset)?;
                }
                scan.items = Items::Committed(Box::new(cursor));
            }
            Source::Transaction(reading, name) => {
                let mut items = reading.scan(name, range, direction);
                scan.transaction = transaction;
                for _ in 0..options.offset {
                    if !items.advance(reading)? {
                        break;
                    }
                }
                scan.items = Items::Transaction(Box::new(items));
            }
            Source::Committed(None) | Source::Uncommitted(..) => return Ok(scan),
        }
        scan.has_item = scan.items.advance(source.transaction())?;
        Ok(scan)
    }

    /// Writes the next items; tells whether the scan stays open.
    pub(crate) fn chunk(
        &mut self,
        limit: ChunkLimit,
        transaction: Option<&Transaction>,
        out: &mut Writer,
    ) -> Result<bool> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let done_at = out.position();
        out.flag(false);
        let count_at = out.reserve_count();
        let bytes_at = out.reserve_count();
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
            if let Err(error) = self.step(transaction) {
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
        out.patch_count(bytes_at, (out.position() - start) as u64);
        Ok(!is_done || self.flags.keep())
    }

    /// Goes on at the first key at or past `key` in this direction.
    pub(crate) fn seek(&mut self, key: &[u8], limit: Option<u64>, transaction: Option<&Transaction>) -> Result<()> {
        self.remaining = limit;
        self.failed = None;
        match &mut self.items {
            Items::Nothing => return Ok(()),
            Items::Committed(cursor) => cursor.seek(key)?,
            Items::Transaction(scan) => scan.seek(transaction.ok_or(Error::Closed)?, key)?,
        }
        self.has_item = self.items.advance(transaction)?;
        Ok(())
    }

    fn wants_more(&self) -> bool {
        self.has_item && self.remaining != Some(0)
    }

    fn item(&self, out: &mut Writer) -> Result<()> {
        let key = match &self.items {
            Items::Nothing => return Ok(()),
            Items::Committed(cursor) => cursor.key(),
            Items::Transaction(scan) => scan.key(),
        };
        if self.flags.keys() {
            out.bytes(key);
        }
        if self.flags.values() {
            match &self.items {
                Items::Nothing => {}
                Items::Committed(cursor) => out.bytes_with(|into| cursor.value_into(into))?,
                Items::Transaction(scan) => out.bytes(&scan.value()?),
            }
        }
        Ok(())
    }

    fn step(&mut self, transaction: Option<&Transaction>) -> Result<()> {
        if let Some(remaining) = &mut self.remaining {
            *remaining -= 1;
            if *remaining == 0 {
                return Ok(());
            }
        }
        self.has_item = self.items.advance(transaction)?;
        Ok(())
    }
}
