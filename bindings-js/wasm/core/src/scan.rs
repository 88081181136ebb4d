//! An open scan: a cursor that the client reads in chunks.

use std::ops::Bound;

use mangrove_engine::{
    Cursor, Direction, Error, KeyRange, OptimisticTransaction, Result, SnapshotCollection, SnapshotIndex,
    TransactionScan,
};

use crate::index_items::IndexItems;
use crate::protocol::{ChunkLimit, MAX_CHUNK_ITEMS, Reader, ScanFlags, ScanOptions, Writer};
use crate::range;
use crate::source::Source;

/// What the scan iterates over.
enum Items {
    /// There are none.
    Nothing,
    Committed(Box<Cursor>),
    Transaction(Box<TransactionScan>),
    Index(Box<IndexItems>),
}

/// State and range of a scan: what another session needs to continue it.
pub(crate) struct Origin {
    /// Index of the collection.
    pub(crate) collection: u64,
    /// If it reads an index, one more than the place of that among those that the client uses;
    /// otherwise 0.
    pub(crate) index: u64,
    /// Version of the state.
    pub(crate) version: u64,
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl Origin {
    pub(crate) fn new(collection: u64, index: u64, version: u64, range: KeyRange<'_>) -> Self {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        Self {
            collection,
            index,
            version,
            lower: owned(range.lower),
            upper: owned(range.upper),
        }
    }

    pub(crate) fn range(&self) -> KeyRange<'_> {
        KeyRange {
            lower: self.lower.as_ref().map(Vec::as_slice),
            upper: self.upper.as_ref().map(Vec::as_slice),
        }
    }
}

/// A cursor between two requests.
pub(crate) struct Scan {
    /// `None` if the scan cannot be handed over.
    pub(crate) origin: Option<Origin>,
    items: Items,
    /// Id of the transaction that it reads, or 0.
    pub(crate) transaction: u64,
    flags: ScanFlags,
    remaining: Option<u64>,
    /// The cursor is on an item that has not been sent.
    has_item: bool,
    /// Error to report after items that can still be sent.
    failed: Option<Error>,
}

impl Items {
    fn advance(&mut self, transaction: Option<&OptimisticTransaction>) -> Result<bool> {
        match self {
            Self::Nothing => Ok(false),
            Self::Committed(cursor) => cursor.advance(),
            Self::Transaction(scan) => scan.advance(transaction.ok_or(Error::Closed)?),
            Self::Index(items) => items.advance(transaction),
        }
    }
}

impl Scan {
    /// Opens a scan at the first item to send. `transaction` is the id of `source` if that is a
    /// transaction.
    pub(crate) fn open(
        source: &Source<'_>,
        transaction: u64,
        range: KeyRange<'_>,
        options: &ScanOptions,
    ) -> Result<Self> {
        let direction = direction(options.flags);
        let mut scan = Self {
            origin: None,
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

    /// Opens a scan of an index at the first item to send. `transaction` is the id of the
    /// transaction that it reads, or 0.
    pub(crate) fn open_index(
        mut items: IndexItems,
        transaction: u64,
        reading: Option<&OptimisticTransaction>,
        options: &ScanOptions,
    ) -> Result<Self> {
        items.skip(options.offset, reading)?;
        let has_item = items.advance(reading)?;
        Ok(Self {
            origin: None,
            items: Items::Index(Box::new(items)),
            transaction,
            flags: options.flags,
            remaining: options.limit,
            has_item,
            failed: None,
        })
    }

    /// Writes the position, for [`resume`](Self::resume).
    pub(crate) fn export(&self, out: &mut Writer) {
        out.raw(&[self.flags.byte()]);
        out.uv(self.remaining.map_or(0, |remaining| remaining.saturating_add(1)));
        let key = match &self.items {
            Items::Committed(cursor) if self.has_item => Some(cursor.key()),
            Items::Index(items) if self.has_item => items.place(),
            _ => None,
        };
        out.flag(key.is_some());
        out.bytes(key.unwrap_or_default());
    }

    /// Continues an exported scan in the same state of the same collection.
    pub(crate) fn resume(tree: Option<&SnapshotCollection>, origin: Origin, reader: &mut Reader<'_>) -> Result<Self> {
        let flags = ScanFlags::of(reader.u8()?);
        let remaining = reader.uv()?.checked_sub(1);
        let (stood, key) = (reader.flag()?, reader.bytes()?);
        let mut scan = Self {
            origin: None,
            items: Items::Nothing,
            transaction: 0,
            flags,
            remaining,
            has_item: false,
            failed: None,
        };
        let range = origin.range();
        if let Some(tree) = tree.filter(|_| !range::is_empty(&range)) {
            let mut cursor = tree.cursor(range, direction(flags));
            if stood {
                cursor.seek(key)?;
                scan.has_item = cursor.advance()?;
            }
            scan.items = Items::Committed(Box::new(cursor));
        }
        scan.origin = Some(origin);
        Ok(scan)
    }

    /// Gives a scan that was resumed without items those of an index, at the place in `exported`.
    pub(crate) fn resume_index(&mut self, index: &SnapshotIndex, mut exported: Reader<'_>) -> Result<()> {
        let flags = ScanFlags::of(exported.u8()?);
        exported.uv()?;
        let (stood, place) = (exported.flag()?, exported.bytes()?);
        let range = self.origin.as_ref().map_or_else(KeyRange::all, Origin::range);
        let mut cursor = index.cursor(range, direction(flags));
        if stood {
            cursor.seek_to(place)?;
        }
        let mut items = IndexItems::committed(cursor, flags);
        self.has_item = stood && items.advance(None)?;
        self.items = Items::Index(Box::new(items));
        Ok(())
    }

    /// Writes the next items; returns whether the scan stays open.
    pub(crate) fn chunk(
        &mut self,
        limit: ChunkLimit,
        transaction: Option<&OptimisticTransaction>,
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

    /// Moves to the first key at or past `key` in the scan's direction.
    pub(crate) fn seek(
        &mut self,
        key: &[u8],
        limit: Option<u64>,
        transaction: Option<&OptimisticTransaction>,
    ) -> Result<()> {
        self.remaining = limit;
        self.failed = None;
        match &mut self.items {
            Items::Nothing => return Ok(()),
            Items::Committed(cursor) => cursor.seek(key)?,
            Items::Transaction(scan) => scan.seek(key)?,
            Items::Index(items) => items.seek(key)?,
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
            Items::Index(items) => {
                items.write(self.flags, out);
                return Ok(());
            }
        };
        if self.flags.keys() {
            out.bytes(key);
        }
        if self.flags.values() {
            match &self.items {
                Items::Nothing | Items::Index(_) => {}
                Items::Committed(cursor) => out.bytes_with(|into| cursor.value_into(into))?,
                Items::Transaction(scan) => out.bytes(&scan.value()?),
            }
        }
        if self.flags.meta() {
            let (version, expires_at) = match &self.items {
                Items::Nothing | Items::Index(_) => (0, None),
                Items::Committed(cursor) => (cursor.version(), cursor.expires_at()),
                Items::Transaction(scan) => (scan.version(), scan.expires_at()),
            };
            out.uv(version);
            out.uv(expires_at.unwrap_or(0));
        }
        Ok(())
    }

    fn step(&mut self, transaction: Option<&OptimisticTransaction>) -> Result<()> {
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

pub(crate) fn direction(flags: ScanFlags) -> Direction {
    if flags.reverse() {
        Direction::Reverse
    } else {
        Direction::Forward
    }
}
