//! External sorting: records are collected in memory, sorted, and written as runs of temporary blocks, which are merged later.
//!
//! A block of a run holds records one after the other: varint length of the key, varint length of the payload, key, payload. A payload is that
//! of a leaf's cell; out-of-line values are written before their record gets here, so records are small. Blocks are read once, in order, and
//! their extents are free again at once.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;

use super::Editor;
use super::cursor::TreeCursor;
use crate::block::{BlockInfo, BlockRef, Kind};
use crate::error::{Error, Result};
use crate::node::Child;
use crate::node::cell::{get_varint, put_varint};
use crate::pages::{BlockBuffer, Extent};
use crate::range::{Direction, KeyRange};

/// Place of a record in the collector.
#[derive(Clone, Copy)]
struct Entry {
    at: usize,
    key_len: u32,
    payload_len: u32,
}

/// Records in memory, in the order they came or sorted.
#[derive(Default)]
pub(crate) struct Collector {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    limit: usize,
}

/// Makes room for `more` elements. Doubling ends where the whole would take more than `limit` bytes.
fn reserve<T>(list: &mut Vec<T>, more: usize, limit: usize) {
    if list.capacity() - list.len() < more {
        let most = (limit / size_of::<T>()).saturating_sub(list.len());
        list.reserve_exact(list.len().min(most).max(more));
    }
}

impl Collector {
    /// It is meant to hold up to `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory that the records take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    pub(crate) fn push(&mut self, key: &[u8], payload: &[u8]) {
        reserve(&mut self.bytes, key.len() + payload.len(), self.limit);
        reserve(&mut self.entries, 1, self.limit);
        self.entries.push(Entry {
            at: self.bytes.len(),
            key_len: key.len() as u32,
            payload_len: payload.len() as u32,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
    }

    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.entries.first().map(|entry| entry.key(&self.bytes))
    }

    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.entries.last().map(|entry| entry.key(&self.bytes))
    }

    pub(crate) fn record(&self, index: usize) -> (&[u8], &[u8]) {
        let entry = self.entries[index];
        let middle = entry.at + entry.key_len as usize;
        let payload = &self.bytes[middle..middle + entry.payload_len as usize];
        (entry.key(&self.bytes), payload)
    }

    /// Sorts by key; records with equal keys stay in the order they came.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        let order = |a: &Entry, b: &Entry| a.key(bytes).cmp(b.key(bytes)).then(a.at.cmp(&b.at));
        self.entries.sort_unstable_by(order);
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

impl Entry {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.at..self.at + self.key_len as usize]
    }
}

/// Sorted records in temporary blocks.
pub(crate) struct Run {
    blocks: VecDeque<BlockRef>,
}

/// Writes a run.
pub(crate) struct RunWriter {
    run: Run,
    payload: Vec<u8>,
    block_bytes: usize,
    buffer: BlockBuffer,
}

impl RunWriter {
    pub(crate) fn new(block_bytes: usize) -> Self {
        let blocks = VecDeque::new();
        Self {
            run: Run { blocks },
            payload: Vec::new(),
            block_bytes,
            buffer: BlockBuffer::new(block_bytes),
        }
    }

    pub(crate) fn push(&mut self, editor: &mut Editor<'_>, key: &[u8], payload: &[u8]) -> Result<()> {
        put_varint(&mut self.payload, key.len() as u64);
        put_varint(&mut self.payload, payload.len() as u64);
        self.payload.extend_from_slice(key);
        self.payload.extend_from_slice(payload);
        if self.payload.len() >= self.block_bytes {
            self.write(editor)?;
        }
        Ok(())
    }

    fn write(&mut self, editor: &mut Editor<'_>) -> Result<()> {
        let info = BlockInfo {
            kind: Kind::Run,
            level: 0,
            owner: editor.owner,
            generation: editor.generation,
        };
        let reference = editor.put_spilled(&mut self.buffer, info, &[&self.payload])?;
        self.run.blocks.push_back(reference);
        self.payload.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self, editor: &mut Editor<'_>) -> Result<Run> {
        if !self.payload.is_empty() {
            self.write(editor)?;
        }
        self.buffer.flush(&editor.pager.blocks)?;
        Ok(self.run)
    }
}

/// Where sorted records come from.
pub(crate) enum Source {
    Memory { records: Collector, next: usize },
    Run { run: Run, block: Vec<u8>, at: usize },
    Tree(TreeCursor),
}

impl Source {
    pub(crate) fn memory(records: Collector) -> Self {
        Self::Memory { records, next: 0 }
    }

    pub(crate) fn run(run: Run) -> Self {
        let block = Vec::new();
        Self::Run { run, block, at: 0 }
    }

    pub(crate) fn tree(root: Child, owner: u32) -> Self {
        Self::Tree(TreeCursor::new(Some(root), owner, &KeyRange::all(), Direction::Forward))
    }

    fn next_into(&mut self, editor: &mut Editor<'_>, head: &mut Head) -> Result<bool> {
        head.key.clear();
        head.payload.clear();
        match self {
            Self::Memory { records, next } => {
                if *next == records.len() {
                    return Ok(false);
                }
                let (key, payload) = records.record(*next);
                *next += 1;
                head.key.extend_from_slice(key);
                head.payload.extend_from_slice(payload);
                Ok(true)
            }
            Self::Run { run, block, at } => {
                if *at == block.len() {
                    let Some(reference) = run.blocks.pop_front() else {
                        return Ok(false);
                    };
                    *block = editor.take_block(&reference)?;
                    *at = 0;
                }
                let malformed = || Error::corrupt("a temporary block of a bulk load is malformed");
                let (key, payload, end) = decode(block, *at).ok_or_else(malformed)?;
                *at = end;
                head.key.extend_from_slice(key);
                head.payload.extend_from_slice(payload);
                Ok(true)
            }
            Self::Tree(cursor) => {
                if !cursor.advance(&editor.pages())? {
                    return Ok(false);
                }
                head.key.extend_from_slice(cursor.key());
                if let Some(record) = cursor.record() {
                    record.encode_into(&mut head.payload);
                }
                Ok(true)
            }
        }
    }
}

/// The record at the front of a block's rest, and where the next one begins.
fn decode(block: &[u8], mut at: usize) -> Option<(&[u8], &[u8], usize)> {
    let mut number = || {
        let (value, len) = get_varint(block.get(at..)?)?;
        at += len;
        usize::try_from(value).ok()
    };
    let (key_len, payload_len) = (number()?, number()?);
    let middle = at.checked_add(key_len)?;
    let end = middle.checked_add(payload_len)?;
    Some((block.get(at..middle)?, block.get(middle..end)?, end))
}

/// The next record of a source.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub key: Vec<u8>,
    pub payload: Vec<u8>,
    pub source: usize,
}

impl Ord for Head {
    /// The least key first, among equal ones that of the first source: a heap gives its greatest element.
    fn cmp(&self, other: &Self) -> Ordering {
        let this = (&self.key, self.source);
        (&other.key, other.source).cmp(&this)
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Sorted records from several sources.
#[derive(Default)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    heads: BinaryHeap<Head>,
}

impl Merge {
    /// Where keys are equal, earlier sources come first.
    pub(crate) fn new(editor: &mut Editor<'_>, sources: Vec<Source>) -> Result<Self> {
        let mut merge = Self {
            sources,
            heads: BinaryHeap::new(),
        };
        for source in 0..merge.sources.len() {
            let head = Head {
                source,
                ..Head::default()
            };
            merge.refill(editor, head)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, editor: &mut Editor<'_>, mut head: Head) -> Result<()> {
        if self.sources[head.source].next_into(editor, &mut head)? {
            self.heads.push(head);
        }
        Ok(())
    }

    pub(crate) fn next(&mut self, editor: &mut Editor<'_>) -> Result<Option<Head>> {
        let Some(head) = self.heads.pop() else {
            return Ok(None);
        };
        let source = head.source;
        self.refill(
            editor,
            Head {
                source,
                ..Head::default()
            },
        )?;
        Ok(Some(head))
    }
}

impl Editor<'_> {
    /// Reads a temporary block and frees its extent.
    fn take_block(&mut self, reference: &BlockRef) -> Result<Vec<u8>> {
        let payload = self.pager.blocks.read(reference, &[Kind::Run], self.owner)?;
        self.draft.spilled.remove(&reference.unit);
        self.free.free(Extent {
            start: reference.unit,
            units: u64::from(reference.units),
        })?;
        Ok(payload)
    }
}

/// Merges runs until at most `most` are left; `None` if `tick`, which is called for each record, breaks. Only neighbours are merged, so that
/// equal keys stay in order.
pub(crate) fn reduce(
    editor: &mut Editor<'_>,
    mut runs: Vec<Run>,
    most: usize,
    block_bytes: usize,
    tick: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Vec<Run>>> {
    while runs.len() > most {
        let mut longer = Vec::with_capacity(runs.len().div_ceil(most));
        let mut rest = runs.into_iter().peekable();
        while rest.peek().is_some() {
            let sources = rest.by_ref().take(most).map(Source::run).collect();
            let mut merge = Merge::new(editor, sources)?;
            let mut writer = RunWriter::new(block_bytes);
            while let Some(record) = merge.next(editor)? {
                writer.push(editor, &record.key, &record.payload)?;
                if tick().is_break() {
                    return Ok(None);
                }
            }
            longer.push(writer.finish(editor)?);
        }
        runs = longer;
    }
    Ok(Some(runs))
}
