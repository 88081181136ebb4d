//! The requests of the protocol and how they are decoded.
//!
//! The tables of the TypeScript side ([`typescript`]) are generated from this file. Requests are
//! matched exhaustively wherever they are handled, so a request that nothing handles does not
//! compile.

use std::fmt::Write as _;

use mangrove_engine::{Durability, IndexDefinition, KeyRange, Result, SliceRecord};

use crate::protocol::{
    BATCH_FLAGS, BatchOp, ChunkLimit, ERROR_FLAGS, EXECUTE_FLAGS, FRAME_PARTS, RANGE_FLAGS, REPLY_STATUS, Reader,
    SCAN_FLAGS, STANDINGS, ScanFlags, ScanOptions, View,
};

/// A field of a request. A malformed one is read as if it were empty: requests have many fields, and
/// asking the reader once, at the end, takes less code than a check after each.
trait Field<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Self;
}

macro_rules! fields {
    ($($type:ty: $read:expr, $empty:expr;)*) => {
        $(impl<'a> Field<'a> for $type {
            fn read(reader: &mut Reader<'a>) -> Self {
                let read: fn(&mut Reader<'a>) -> Result<Self> = $read;
                read(reader).unwrap_or($empty)
            }
        })*
    };
}

fields! {
    u64: Reader::uv, 0;
    usize: Reader::size, 0;
    bool: Reader::flag, false;
    &'a [u8]: Reader::bytes, &[];
    &'a str: Reader::str, "";
    // 0 means none.
    Option<u64>: Reader::limit, None;
    View: Reader::view, View::Current;
    Durability: Reader::durability, Durability::Strict;
    KeyRange<'a>: Reader::range, KeyRange::all();
    ChunkLimit: Reader::chunk, ChunkLimit { items: 0, bytes: 0 };
    ScanOptions: Reader::scan_options, ScanOptions { flags: ScanFlags::default(), offset: 0, limit: None, chunk: ChunkLimit { items: 0, bytes: 0 } };
    Keys<'a>: |reader| reader.list().map(|(count, keys)| Keys { count, keys }), Keys { count: 0, keys: Reader::new(&[]) };
    Batch<'a>: |reader| reader.batch().map(|(count, changes)| Batch { count, changes }), Batch { count: 0, changes: Reader::new(&[]) };
    Since: |reader| Ok(Since(reader.uv()?.checked_sub(1))), Since(None);
    Definitions<'a>: |reader| reader.list_of(|reader| reader.definition().map(drop)).map(|(count, items)| Definitions { count, items }),
        Definitions { count: 0, items: Reader::new(&[]) };
    SliceRecords<'a>: |reader| reader.list_of(|reader| reader.slice_record().map(drop)).map(|(count, items)| SliceRecords { count, items }),
        SliceRecords { count: 0, items: Reader::new(&[]) };
    Option<&'a [u8]>: |reader| Ok(if reader.flag()? { Some(reader.bytes()?) } else { None }), None;
    Option<Part<'a>>: |reader| {
        Ok(if reader.flag()? {
            Some(Part { collection: reader.uv()?, range: reader.range()? })
        } else {
            None
        })
    }, None;
    Write<'a>: |reader| {
        let code = reader.u8()?;
        Write::decode(code, reader)
    }, Write::Delete { durability: Durability::Strict, collection: 0, key: &[] };
}

/// Keys to look up, checked to be complete.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    count: usize,
    keys: Reader<'a>,
}

impl<'a> Keys<'a> {
    /// Returns the keys in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<&'a [u8]>> + use<'a> {
        let mut keys = self.keys;
        (0..self.count).map(move |_| keys.bytes())
    }
}

/// Changes of a batch, checked to be complete.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    count: usize,
    changes: Reader<'a>,
}

impl<'a> Batch<'a> {
    /// Whether there are two changes or more.
    pub fn is_plural(&self) -> bool {
        self.count > 1
    }

    /// Whether any of its changes has index keys.
    pub fn states_index_keys(&self) -> bool {
        self.iter()
            .any(|change| matches!(change, Ok(BatchOp::SetIndexed { .. })))
    }

    /// Returns the changes in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<BatchOp<'a>>> + use<'a> {
        let mut changes = self.changes;
        (0..self.count).map(move |_| changes.batch_op())
    }
}

/// Definitions of indexes, checked to be complete.
#[derive(Clone, Copy, Debug)]
pub struct Definitions<'a> {
    count: usize,
    items: Reader<'a>,
}

impl Definitions<'_> {
    /// Returns the definitions in order.
    pub fn to_vec(self) -> Result<Vec<IndexDefinition>> {
        let mut items = self.items;
        (0..self.count).map(|_| items.definition()).collect()
    }
}

/// Records of a slice of an index that is being built, checked to be complete.
#[derive(Clone, Copy, Debug)]
pub struct SliceRecords<'a> {
    count: usize,
    items: Reader<'a>,
}

impl SliceRecords<'_> {
    /// Returns the records in order.
    pub fn to_vec(self) -> Result<Vec<SliceRecord>> {
        let mut items = self.items;
        (0..self.count).map(|_| items.slice_record()).collect()
    }
}

/// The version after which to follow; `None` for the newest.
#[derive(Clone, Copy, Debug)]
pub struct Since(pub Option<u64>);

/// A range of a collection.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Index of the collection.
    pub collection: u64,
    /// Its range of keys.
    pub range: KeyRange<'a>,
}

/// Declares requests with their opcodes, and how they are decoded.
macro_rules! requests {
    (
        $(#[$about:meta])*
        $name:ident, otherwise $otherwise:expr, $(also $(#[$also_about:meta])* $also:ident($inner:ty),)?
        $($(#[$doc:meta])* $code:literal $variant:ident { $($field:ident: $type:ty),* })*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "fields are named after what they are")]
        pub enum $name<'a> {
            $($(#[$doc])* $variant { $($field: $type),* },)*
            $($(#[$also_about])* $also($inner),)?
        }

        impl<'a> $name<'a> {
            /// Names and opcodes.
            pub const CODES: &'static [(&'static str, u8)] = &[$((stringify!($variant), $code)),*];

            fn decode(code: u8, reader: &mut Reader<'a>) -> Result<Self> {
                Ok(match code {
                    $($code => Self::$variant { $($field: Field::read(reader)),* },)*
                    code => {
                        let otherwise: fn(u8, &mut Reader<'a>) -> Result<Self> = $otherwise;
                        return otherwise(code, reader);
                    }
                })
            }

            /// First byte of the request on the wire.
            #[cfg(test)]
            #[must_use]
            pub fn code(&self) -> u8 {
                match self {
                    $(Self::$variant { .. } => $code,)*
                    $(Self::$also(inner) => <$inner>::code(inner),)?
                }
            }
        }
    };
}

requests! {
    /// A write, to the newest state or within a transaction.
    Write, otherwise |_, reader| Err(reader.malformed()),
    /// Stores a record.
    0x30 Set { durability: Durability, collection: u64, key: &'a [u8], value: &'a [u8] }
    /// Removes a record.
    0x31 Delete { durability: Durability, collection: u64, key: &'a [u8] }
    /// Removes the records of a range.
    0x32 Clear { durability: Durability, collection: u64, range: KeyRange<'a> }
    /// Applies several changes, all or none.
    0x33 Batch { durability: Durability, changes: Batch<'a> }
    /// Drops a collection.
    0x34 Drop { durability: Durability, name: &'a str }
    /// Returns the record, or stores one if there is none.
    0x36 GetOrInsert { durability: Durability, collection: u64, key: &'a [u8], value: &'a [u8], expires_at: Option<u64> }
    /// Renames a collection.
    0x37 Rename { durability: Durability, name: &'a str, to: &'a str }
}

requests! {
    /// One request of a message.
    Request,
    otherwise |code, reader| Write::decode(code, reader).map(Self::Write),
    also
    /// A write to the newest state.
    Write(Write<'a>),
    /// Declares a collection and the codecs that the client uses for it.
    0x01 Use { index: usize, name: &'a str, key_codec: &'a str, value_codec: &'a str }
    /// States which indexes the client's writes to a collection have keys for, in this order.
    0x02 UseIndexes { collection: u64, indexes: Definitions<'a> }
    /// States the schema version that the client is written for.
    0x03 SchemaJoin { version: u64 }
    /// Reports how far the client's upgrade is.
    0x04 SchemaProgress { done: u64, total: u64 }
    /// Ends the client's upgrade, complete or not.
    0x05 SchemaEnd {}
    0x10 Get { view: View, collection: u64, key: &'a [u8] }
    /// Returns values until the reply is full. If it is cut and the view is the newest state, that
    /// state is open as snapshot `id` from then on, for the values that are left.
    0x11 GetMany { view: View, collection: u64, id: u64, keys: Keys<'a> }
    0x12 HasMany { view: View, collection: u64, keys: Keys<'a> }
    0x13 Count { view: View, collection: u64, range: KeyRange<'a> }
    /// Returns the record at a position of a range, counted from its first or last.
    0x14 At { view: View, collection: u64, range: KeyRange<'a>, from_end: bool, index: u64 }
    /// Counts the keys of a range below a key.
    0x15 Rank { view: View, collection: u64, range: KeyRange<'a>, key: &'a [u8] }
    /// Returns the first or last record of a range.
    0x16 Edge { view: View, collection: u64, range: KeyRange<'a>, from_end: bool }
    /// Returns a record with its version and expiry time.
    0x17 Entry { view: View, collection: u64, key: &'a [u8] }
    0x18 ScanOpen { id: u64, view: View, collection: u64, range: KeyRange<'a>, options: ScanOptions }
    0x19 ScanNext { id: u64, chunk: ChunkLimit }
    0x1a ScanSeek { id: u64, key: &'a [u8], limit: Option<u64> }
    0x1b ScanClose { id: u64 }
    /// Returns when the next record of a range expires, or 0.
    0x1c NextExpiry { view: View, collection: u64, range: KeyRange<'a> }
    0x20 SnapshotOpen { id: u64 }
    0x21 SnapshotClose { id: u64 }
    0x22 TransactionOpen { id: u64, is_snapshot: bool }
    0x23 TransactionCommit { id: u64, durability: Durability }
    0x24 TransactionClose { id: u64 }
    0x25 Savepoint { transaction: u64 }
    0x26 RollbackTo { transaction: u64, savepoint: u64 }
    /// A write within a transaction; its durability is ignored.
    0x27 Within { transaction: u64, write: Write<'a> }
    0x28 ChangesOpen { id: u64, since: Since, part: Option<Part<'a>> }
    0x29 ChangesNext { id: u64, max_bytes: u64 }
    0x2a ChangesClose { id: u64 }
    /// Lists the followers that have commits to read.
    0x2b ChangesReady {}
    0x35 Collections {}
    0x40 Flush {}
    0x41 Stats {}
    /// Begins a verification, or continues it by about `bytes` bytes.
    0x42 Verify { id: u64, bytes: u64 }
    /// Removes expired records.
    0x43 Purge { limit: u64 }
    /// Moves a reader beside a writer to the newest committed state.
    0x44 Refresh {}
    0x45 BackupOpen { id: u64 }
    0x46 BackupNext { id: u64, bytes: u64 }
    0x47 BackupClose { id: u64 }
    0x48 Compact { slices: u64, threshold_bytes: u64 }
    0x49 VerifyClose { id: u64 }
    /// Begins or continues a layout by `visits` nodes and values; 0 ends it.
    0x4a Layout { id: u64, visits: u64, begins: bool }
    0x4f Close {}
    /// Creates the indexes that the client uses of a collection, or newer versions of them.
    0x50 DeclareIndexes { durability: Durability, collection: u64 }
    0x51 DropIndex { durability: Durability, collection: u64, name: &'a str }
    /// Returns how much of the collection each of the client's indexes covers.
    0x52 Indexes { collection: u64 }
    /// Adds records to an index that is being built.
    0x53 IndexSlice {
        durability: Durability, collection: u64, index: u64, from: Option<&'a [u8]>, to: Option<&'a [u8]>, records: SliceRecords<'a>
    }
    /// Counts the entries of a range of index keys.
    0x54 IndexCount { view: View, collection: u64, index: u64, range: KeyRange<'a> }
    /// Returns the entry at a position of a range of index keys, counted from its first or last.
    0x55 IndexAt { view: View, collection: u64, index: u64, range: KeyRange<'a>, from_end: bool, position: u64 }
    /// Opens a scan of a range of index keys.
    0x56 IndexScan { id: u64, view: View, collection: u64, index: u64, range: KeyRange<'a>, options: ScanOptions }
    /// A [`LazyRequest`], in bytes, so that the core of a module that was split need not know them.
    /// The durability is that of `Store`.
    0x60 Lazy { durability: Durability, body: &'a [u8] }
}

requests! {
    /// A request that only the lazy part of the module decodes.
    LazyRequest, otherwise |_, reader| Err(reader.malformed()),
    /// Returns part of a value, with the value's length and version.
    0x01 Read { view: View, collection: u64, key: &'a [u8], start: u64, end: u64 }
    /// Appends to a value that is written in parts, at this offset; begins one at 0.
    0x02 Append { id: u64, collection: u64, offset: u64, bytes: &'a [u8] }
    /// Stores a value that was written in parts.
    0x03 Store { id: u64, collection: u64, key: &'a [u8], expires_at: Option<u64> }
    /// Gives up a value that was written in parts.
    0x04 Discard { id: u64 }
    /// Changes the key of an encrypted database; see the crate's `secret`.
    0x05 ChangeKey { secret: &'a [u8] }
    /// Runs up to this many slices of a re-encryption, which a call that `begins` may begin.
    0x06 Reencrypt { slices: u64, begins: bool }
}

impl<'a> LazyRequest<'a> {
    /// Decodes the body of a request.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(body);
        let code = reader.u8()?;
        let request = Self::decode(code, &mut reader)?;
        reader.whole(request)
    }
}

impl<'a> Request<'a> {
    /// Decodes the next request of a message.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](mangrove_engine::Error::InvalidArgument) if it is malformed; the
    /// reader is at its end then.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self> {
        let code = reader.u8()?;
        let request = Self::decode(code, reader)?;
        reader.whole(request)
    }
}

impl Request<'_> {
    /// Whether the request may join the group of writes before it: it is a write itself, it can
    /// read uncommitted writes, or it does not read the newest state. Any other request ends the
    /// group, which makes its writes durable.
    pub(crate) fn joins_group(&self) -> bool {
        match self {
            Self::Write(_)
            | Self::Use { .. }
            | Self::UseIndexes { .. }
            | Self::Get { .. }
            | Self::GetMany { .. }
            | Self::HasMany { .. }
            | Self::Entry { .. }
            | Self::ScanNext { .. }
            | Self::ScanSeek { .. }
            | Self::ScanClose { .. }
            | Self::SnapshotClose { .. }
            | Self::TransactionClose { .. }
            | Self::Savepoint { .. }
            | Self::RollbackTo { .. }
            | Self::Within { .. }
            | Self::ChangesNext { .. }
            | Self::ChangesClose { .. }
            | Self::ChangesReady { .. }
            | Self::BackupNext { .. }
            | Self::BackupClose { .. }
            | Self::VerifyClose { .. } => true,
            Self::SchemaJoin { .. }
            | Self::SchemaProgress { .. }
            | Self::SchemaEnd {}
            | Self::Count { .. }
            | Self::At { .. }
            | Self::Rank { .. }
            | Self::NextExpiry { .. }
            | Self::Edge { .. }
            | Self::ScanOpen { .. }
            | Self::SnapshotOpen { .. }
            | Self::TransactionOpen { .. }
            | Self::TransactionCommit { .. }
            | Self::ChangesOpen { .. }
            | Self::Collections { .. }
            | Self::Flush { .. }
            | Self::Stats { .. }
            | Self::Verify { .. }
            | Self::Purge { .. }
            | Self::Refresh { .. }
            | Self::BackupOpen { .. }
            | Self::Compact { .. }
            | Self::Layout { .. }
            | Self::DeclareIndexes { .. }
            | Self::DropIndex { .. }
            | Self::Indexes { .. }
            | Self::IndexSlice { .. }
            | Self::IndexCount { .. }
            | Self::IndexAt { .. }
            | Self::IndexScan { .. }
            | Self::Lazy { .. }
            | Self::Close { .. } => false,
        }
    }

    /// Whether its code may be in a separate module, loaded at the first such request; see
    /// [`lazy`](crate::lazy).
    pub(crate) fn needs_lazy(&self) -> bool {
        matches!(
            self,
            Self::Stats {}
                | Self::Verify { .. }
                | Self::BackupNext { .. }
                | Self::Compact { .. }
                | Self::Layout { .. }
                | Self::Refresh {}
                | Self::DeclareIndexes { .. }
                | Self::DropIndex { .. }
                | Self::Indexes { .. }
                | Self::IndexSlice { .. }
                | Self::IndexCount { .. }
                | Self::IndexAt { .. }
                | Self::IndexScan { .. }
                | Self::Lazy { .. }
        )
    }

    /// Whether it also [needs the lazy part](Self::needs_lazy) if the database has indexes.
    pub(crate) fn may_change_indexes(&self) -> bool {
        matches!(
            self,
            Self::Write(_) | Self::Within { .. } | Self::TransactionCommit { .. } | Self::Purge { .. }
        )
    }

    /// Whether it may write.
    pub(crate) fn may_write(&self) -> bool {
        // Not `Purge`, which removes only what nobody can read.
        matches!(
            self,
            Self::Write(_)
                | Self::Within { .. }
                | Self::TransactionCommit { .. }
                | Self::DeclareIndexes { .. }
                | Self::DropIndex { .. }
                | Self::IndexSlice { .. }
                | Self::Lazy { .. }
        )
    }

    /// Whether it only names or closes something that the client has open.
    pub(crate) fn only_closes(&self) -> bool {
        matches!(
            self,
            Self::Use { .. }
                | Self::UseIndexes { .. }
                | Self::SchemaJoin { .. }
                | Self::SchemaProgress { .. }
                | Self::SchemaEnd {}
                | Self::ScanClose { .. }
                | Self::SnapshotClose { .. }
                | Self::TransactionClose { .. }
                | Self::ChangesClose { .. }
                | Self::BackupClose { .. }
                | Self::VerifyClose { .. }
                | Self::Close {}
        )
    }

    /// Whether it is a write with index keys.
    pub(crate) fn states_index_keys(&self) -> bool {
        let (Self::Write(Write::Batch { changes, .. })
        | Self::Within {
            write: Write::Batch { changes, .. },
            ..
        }) = self
        else {
            return false;
        };
        changes.states_index_keys()
    }

    /// Whether the request changes what the client has open. `ScanOpen` does only if the scan stays
    /// open, and sets the state's `has_changed` itself.
    pub(crate) fn opens(&self) -> bool {
        match self {
            Self::Use { .. }
            | Self::UseIndexes { .. }
            | Self::SchemaJoin { .. }
            | Self::SchemaEnd {}
            | Self::ScanNext { .. }
            | Self::ScanSeek { .. }
            | Self::ScanClose { .. }
            | Self::SnapshotOpen { .. }
            | Self::SnapshotClose { .. }
            | Self::TransactionOpen { .. }
            | Self::TransactionCommit { .. }
            | Self::TransactionClose { .. }
            | Self::ChangesOpen { .. }
            | Self::ChangesNext { .. }
            | Self::ChangesClose { .. }
            | Self::BackupOpen { .. }
            | Self::BackupClose { .. } => true,
            Self::Write(_)
            | Self::SchemaProgress { .. }
            | Self::Get { .. }
            | Self::GetMany { .. }
            | Self::HasMany { .. }
            | Self::Count { .. }
            | Self::At { .. }
            | Self::Rank { .. }
            | Self::NextExpiry { .. }
            | Self::Edge { .. }
            | Self::Entry { .. }
            | Self::ScanOpen { .. }
            | Self::Savepoint { .. }
            | Self::RollbackTo { .. }
            | Self::Within { .. }
            | Self::ChangesReady { .. }
            | Self::Collections { .. }
            | Self::Flush { .. }
            | Self::Stats { .. }
            | Self::Verify { .. }
            | Self::VerifyClose { .. }
            | Self::Purge { .. }
            | Self::Refresh { .. }
            | Self::BackupNext { .. }
            | Self::Compact { .. }
            | Self::Layout { .. }
            | Self::DeclareIndexes { .. }
            | Self::DropIndex { .. }
            | Self::Indexes { .. }
            | Self::IndexSlice { .. }
            | Self::IndexCount { .. }
            | Self::IndexAt { .. }
            | Self::IndexScan { .. }
            | Self::Lazy { .. }
            | Self::Close { .. } => false,
        }
    }
}

/// Returns opcodes and flags as a TypeScript module.
#[must_use]
pub fn typescript() -> String {
    let mut text = String::from("// Generated from crate/src/request.rs and crate/src/protocol.rs. Do not edit.\n");
    let mut table = |about: &str, name: &str, rows: &[(&str, u8)]| {
        let _ = write!(text, "\n/** {about} */\nexport const {name} = {{\n");
        for (row, value) in rows {
            let mut row = (*row).to_owned();
            row[..1].make_ascii_lowercase();
            let _ = writeln!(text, "  {row}: {value:#04x},");
        }
        text.push_str("} as const;\n");
    };
    let codes = [Request::CODES, Write::CODES].concat();
    table("First byte of each request.", "Op", &codes);
    table("First byte of the body of `lazy`.", "LazyOp", LazyRequest::CODES);
    table("Ends of a range.", "RangeFlag", RANGE_FLAGS);
    table("Direction, content and end of a scan.", "ScanFlag", SCAN_FLAGS);
    table("Changes of a batch.", "BatchKind", BATCH_FLAGS);
    table("First byte of each reply.", "ReplyStatus", REPLY_STATUS);
    table(
        "How a client's schema version stands to that of the database.",
        "SchemaStanding",
        STANDINGS,
    );
    table("What follows an error's message.", "ErrorFlag", ERROR_FLAGS);
    table("What is left to do after a message.", "ExecuteFlag", EXECUTE_FLAGS);
    table(
        "Places in the engine's frame of 32-bit words: each part has an address and a length in bytes, but for the cut, which has a place in the message and a number of replies.",
        "FramePart",
        FRAME_PARTS,
    );
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn opcodes_are_distinct() {
        let codes: Vec<u8> = [Request::CODES, Write::CODES]
            .concat()
            .iter()
            .map(|(_, code)| *code)
            .collect();
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len());
    }

    fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kv/src/wire/opcodes.ts")
    }

    #[test]
    fn typescript_has_the_same_tables() {
        let found = std::fs::read_to_string(path()).unwrap_or_default();
        assert!(
            found == typescript(),
            "opcodes.ts is out of date; run: cargo test -p mangrove-bindings --lib opcodes -- --ignored"
        );
    }

    #[test]
    #[ignore = "writes opcodes.ts"]
    fn write_opcodes() {
        std::fs::write(path(), typescript()).expect("the sources can be written");
    }
}
