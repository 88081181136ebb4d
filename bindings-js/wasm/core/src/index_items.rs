//! The entries of an index that a scan iterates over.
//!
//! In browsers all of this belongs to the lazy part of the module; see [`lazy`](crate::lazy).

use mangrove_engine::{Entry, Error, IndexCursor, IndexScan, OptimisticTransaction, Result};

use crate::protocol::{ScanFlags, Writer};

enum Place {
    Committed(Box<IndexCursor>),
    /// The scan, and the name of its collection.
    Transaction(Box<IndexScan>, String),
}

/// A place among the entries of an index.
pub(crate) struct IndexItems {
    place: Place,
    /// Whether the records are read, and not only their keys.
    reads_records: bool,
    /// The current entry's record, if records are read.
    record: Option<Entry>,
}

impl IndexItems {
    pub(crate) fn committed(cursor: IndexCursor, flags: ScanFlags) -> Self {
        Self::new(Place::Committed(Box::new(cursor)), flags)
    }

    pub(crate) fn within(scan: IndexScan, collection: &str, flags: ScanFlags) -> Self {
        Self::new(Place::Transaction(Box::new(scan), collection.to_owned()), flags)
    }

    fn new(place: Place, flags: ScanFlags) -> Self {
        Self {
            place,
            reads_records: flags.values() || flags.meta(),
            record: None,
        }
    }

    pub(crate) fn skip(&mut self, count: u64, transaction: Option<&OptimisticTransaction>) -> Result<()> {
        if let Place::Committed(cursor) = &mut self.place {
            return if count > 0 { cursor.skip(count) } else { Ok(()) };
        }
        for _ in 0..count {
            if !self.advance(transaction)? {
                break;
            }
        }
        Ok(())
    }

    // Lazy root.
    #[inline(never)]
    pub(crate) fn advance(&mut self, transaction: Option<&OptimisticTransaction>) -> Result<bool> {
        loop {
            let advanced = match &mut self.place {
                Place::Committed(cursor) => cursor.advance()?,
                Place::Transaction(scan, _) => scan.advance(transaction.ok_or(Error::Closed)?)?,
            };
            if !advanced || !self.reads_records {
                return Ok(advanced);
            }
            self.record = match &self.place {
                Place::Committed(cursor) => Some(cursor.entry()?),
                Place::Transaction(scan, name) => transaction.ok_or(Error::Closed)?.entry(name, scan.key())?,
            };
            // The transaction may have removed the record since the scan began.
            if self.record.is_some() {
                return Ok(true);
            }
        }
    }

    // Lazy root.
    #[inline(never)]
    pub(crate) fn seek(&mut self, index_key: &[u8]) -> Result<()> {
        match &mut self.place {
            Place::Committed(cursor) => cursor.seek(index_key),
            Place::Transaction(scan, _) => scan.seek(index_key),
        }
    }

    /// Place of the current entry, for another session; `None` within transactions.
    // Lazy root.
    #[inline(never)]
    pub(crate) fn place(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Committed(cursor) => Some(cursor.place()),
            Place::Transaction(..) => None,
        }
    }

    /// Writes index key and key, then what the flags ask for.
    // Lazy root.
    #[inline(never)]
    pub(crate) fn write(&self, flags: ScanFlags, out: &mut Writer) {
        let (index_key, key) = match &self.place {
            Place::Committed(cursor) => (cursor.index_key(), cursor.key()),
            Place::Transaction(scan, _) => (scan.index_key(), scan.key()),
        };
        out.bytes(index_key);
        out.bytes(key);
        if let Some(record) = &self.record {
            write_record(record, flags, out);
        }
    }
}

/// Writes what the flags ask for of a record.
pub(crate) fn write_record(record: &Entry, flags: ScanFlags, out: &mut Writer) {
    if flags.values() {
        out.bytes(&record.value);
    }
    if flags.meta() {
        out.uv(record.version);
        out.uv(record.expires_at.unwrap_or(0));
    }
}
