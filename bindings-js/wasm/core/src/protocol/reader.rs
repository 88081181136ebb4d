//! Decodes requests.

use std::ops::Bound;

use mangrove_engine::{Durability, Error, IndexDefinition, KeyRange, Result, SliceRecord};

use super::{
    BATCH_CHECK, BATCH_DELETE, BATCH_SET, BATCH_SET_EXPIRING, BATCH_SET_INDEXED, BatchOp, ChunkLimit, HAS_LOWER,
    HAS_UPPER, LOWER_EXCLUSIVE, REPLY_BYTES, ScanFlags, ScanOptions, UPPER_EXCLUSIVE, View,
};

const DEFAULT_CHUNK_ITEMS: u64 = 256;
const DEFAULT_CHUNK_BYTES: u64 = 64 << 10;

/// Decodes a message. Nothing after a malformed request can be decoded, so an error discards the
/// rest.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    is_malformed: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self::from(message, 0)
    }

    /// Reads from byte `at` of `message`.
    pub fn from(message: &'a [u8], at: usize) -> Self {
        Self {
            rest: message.get(at..).unwrap_or_default(),
            is_malformed: false,
        }
    }

    /// Returns the number of unread bytes.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next byte without consuming it.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Discards the rest of the message and returns the error.
    #[cold]
    pub fn malformed(&mut self) -> Error {
        self.rest = &[];
        self.is_malformed = true;
        Error::InvalidArgument {
            what: "malformed request".into(),
        }
    }

    /// Returns what was read from the message, unless that failed.
    pub(crate) fn whole<T>(&mut self, read: T) -> Result<T> {
        if self.is_malformed {
            Err(self.malformed())
        } else {
            Ok(read)
        }
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8> {
        let Some((&first, rest)) = self.rest.split_first() else {
            return Err(self.malformed());
        };
        self.rest = rest;
        Ok(first)
    }

    /// Reads an unsigned number.
    pub fn uv(&mut self) -> Result<u64> {
        let mut value = 0;
        for ((index, byte), shift) in self.rest.iter().enumerate().zip((0..64).step_by(7)) {
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if *byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(self.malformed())
    }

    /// Reads a byte string.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.count()?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a string.
    pub fn str(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.malformed())
    }

    /// Reads the number of items that follow, each of at least one byte.
    pub fn count(&mut self) -> Result<usize> {
        match usize::try_from(self.uv()?) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(self.malformed()),
        }
    }

    /// Reads a length or position.
    pub fn size(&mut self) -> Result<usize> {
        usize::try_from(self.uv()?).map_err(|_| self.malformed())
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, len: usize) {
        self.rest = self.rest.get(len..).unwrap_or_default();
    }

    /// Reads a bound, as [`Writer::bound`] writes it.
    pub fn owned_bound(&mut self) -> Result<Bound<Vec<u8>>> {
        Ok(match self.u8()? {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.bytes()?.to_vec()),
            2 => Bound::Excluded(self.bytes()?.to_vec()),
            _ => return Err(self.malformed()),
        })
    }

    /// Reads a flag, 0 or 1.
    pub fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// Reads a view: 0 for the newest state, otherwise an id.
    pub fn view(&mut self) -> Result<View> {
        Ok(match self.uv()? {
            0 => View::Current,
            id => View::Opened(id),
        })
    }

    /// Reads a durability.
    pub fn durability(&mut self) -> Result<Durability> {
        match self.u8()? {
            0 => Ok(Durability::Strict),
            1 => Ok(Durability::Relaxed),
            2 => Ok(Durability::None),
            _ => Err(self.malformed()),
        }
    }

    /// Reads a range of keys.
    pub fn range(&mut self) -> Result<KeyRange<'a>> {
        let flags = self.u8()?;
        if flags & !(HAS_LOWER | LOWER_EXCLUSIVE | HAS_UPPER | UPPER_EXCLUSIVE) != 0 {
            return Err(self.malformed());
        }
        let lower = self.bound(flags & HAS_LOWER != 0, flags & LOWER_EXCLUSIVE != 0)?;
        let upper = self.bound(flags & HAS_UPPER != 0, flags & UPPER_EXCLUSIVE != 0)?;
        Ok(KeyRange { lower, upper })
    }

    fn bound(&mut self, present: bool, exclusive: bool) -> Result<Bound<&'a [u8]>> {
        Ok(match (present, exclusive) {
            (false, _) => Bound::Unbounded,
            (true, false) => Bound::Included(self.bytes()?),
            (true, true) => Bound::Excluded(self.bytes()?),
        })
    }

    /// Reads the limits of one reply of a scan; 0 selects the default.
    pub fn chunk(&mut self) -> Result<ChunkLimit> {
        let items = self.uv()?;
        let bytes = self.uv()?;
        Ok(ChunkLimit {
            items: if items == 0 { DEFAULT_CHUNK_ITEMS } else { items },
            bytes: if bytes == 0 {
                DEFAULT_CHUNK_BYTES
            } else {
                bytes.min(REPLY_BYTES as u64)
            },
        })
    }

    /// Reads a number of which 0 means none.
    pub fn limit(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.uv()?).filter(|&limit| limit != 0))
    }

    /// Reads the options of a scan.
    pub fn scan_options(&mut self) -> Result<ScanOptions> {
        Ok(ScanOptions {
            flags: ScanFlags(self.u8()?),
            offset: self.uv()?,
            limit: self.limit()?,
            chunk: self.chunk()?,
        })
    }

    /// Reads byte strings, preceded by their number, and checks that all are present. Returns their
    /// number and a reader at the first.
    pub fn list(&mut self) -> Result<(usize, Self)> {
        let count = self.count()?;
        let items = *self;
        for _ in 0..count {
            self.bytes()?;
        }
        Ok((count, items))
    }

    /// Reads items, preceded by their number, and checks that all are present. Returns their number
    /// and a reader at the first.
    pub fn list_of(&mut self, read: fn(&mut Self) -> Result<()>) -> Result<(usize, Self)> {
        let count = self.count()?;
        let items = *self;
        for _ in 0..count {
            read(self)?;
        }
        Ok((count, items))
    }

    /// Reads the definition of an index.
    pub fn definition(&mut self) -> Result<IndexDefinition> {
        Ok(IndexDefinition {
            name: self.str()?.to_owned(),
            version: u32::try_from(self.uv()?).map_err(|_| self.malformed())?,
            unique: self.flag()?,
        })
    }

    /// Reads a record of a slice of an index.
    pub fn slice_record(&mut self) -> Result<SliceRecord> {
        Ok(SliceRecord {
            key: self.bytes()?.to_vec(),
            version: self.uv()?,
            index_keys: self.index_keys()?,
        })
    }

    /// Reads a record's keys in one index.
    pub fn index_keys(&mut self) -> Result<Vec<Vec<u8>>> {
        (0..self.count()?).map(|_| Ok(self.bytes()?.to_vec())).collect()
    }

    /// Reads the changes of a batch, preceded by their number, and checks that all are present.
    /// Returns their number and a reader at the first.
    pub fn batch(&mut self) -> Result<(usize, Self)> {
        let count = self.count()?;
        let items = *self;
        for _ in 0..count {
            self.batch_op()?;
        }
        Ok((count, items))
    }

    /// Reads one change of a batch.
    pub fn batch_op(&mut self) -> Result<BatchOp<'a>> {
        let kind = self.u8()?;
        let collection = self.uv()?;
        let key = self.bytes()?;
        Ok(match kind {
            BATCH_SET | BATCH_SET_EXPIRING => BatchOp::Set {
                collection,
                key,
                value: self.bytes()?,
                expires_at: if kind == BATCH_SET { None } else { Some(self.uv()?) },
            },
            BATCH_SET_INDEXED => BatchOp::SetIndexed {
                collection,
                key,
                value: self.bytes()?,
                expires_at: self.limit()?,
                index_keys: self.bytes()?,
            },
            BATCH_DELETE => BatchOp::Delete { collection, key },
            BATCH_CHECK => BatchOp::Check {
                collection,
                key,
                version: self.uv()?.checked_sub(1),
            },
            _ => return Err(self.malformed()),
        })
    }
}
