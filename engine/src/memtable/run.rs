//! Changes in the order in which they were made, to be sorted in bulk.
//!
//! A change that is put into a large memtable waits for memory at every node on its path. Appending
//! it here does not, and sorted changes visit the nodes in the order in which these lie.

use std::cmp::Ordering;

use super::cells::head;
use crate::node::common_prefix;

/// Size of the first chunk. Each further chunk is twice as large, up to `LAST_CHUNK_BYTES`.
const FIRST_CHUNK_BYTES: usize = 64 << 10;
const LAST_CHUNK_BYTES: usize = 1 << 20;

/// Size at which a run is sorted. While its changes go into the nodes, this much memory is taken
/// twice.
const RUN_BYTES: usize = if cfg!(test) { 2 << 10 } else { 8 << 20 };

/// Payload length that marks a removed record.
const REMOVED: u32 = u32::MAX;

/// Position of a change: its key, then its payload.
#[derive(Clone, Copy)]
struct Slot {
    /// Eight bytes of the key, set when the run is sorted.
    head: u64,
    chunk: u32,
    start: u32,
    key_len: u32,
    payload_len: u32,
}

/// Key and payload; without a payload, the record is removed.
pub(super) type RunEntry<'r> = (&'r [u8], Option<&'r [u8]>);

#[derive(Default)]
pub(super) struct Run {
    chunks: Vec<Vec<u8>>,
    slots: Vec<Slot>,
    bytes: usize,
}

impl Run {
    /// Appends a change.
    pub(super) fn push(&mut self, key: &[u8], payload: Option<&[u8]>) {
        let value = payload.unwrap_or_default();
        let len = key.len() + value.len();
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.capacity() - chunk.len() < len.max(1))
        {
            let size = FIRST_CHUNK_BYTES << self.chunks.len().min(8);
            self.chunks
                .push(Vec::with_capacity(size.min(LAST_CHUNK_BYTES).max(len.max(1))));
        }
        let chunk = self.chunks.len() - 1;
        let bytes = &mut self.chunks[chunk];
        self.slots.push(Slot {
            head: 0,
            chunk: chunk as u32,
            start: bytes.len() as u32,
            key_len: key.len() as u32,
            payload_len: payload.map_or(REMOVED, |payload| payload.len() as u32),
        });
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        if len == 0 {
            // Gives the next change a position behind this one.
            bytes.push(0);
        }
        self.bytes += len.max(1) + size_of::<Slot>();
    }

    /// Memory that the changes take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn key(&self, slot: &Slot) -> &[u8] {
        &self.chunks[slot.chunk as usize][slot.start as usize..][..slot.key_len as usize]
    }

    /// Sorts the changes by key; of the changes to one key, only the last one stays.
    pub(super) fn sort(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        let first = slots.first().map_or(&[][..], |slot| self.key(slot));
        let mut skip = first.len();
        for slot in &slots {
            skip = common_prefix(&first[..skip], self.key(slot));
        }
        for slot in &mut slots {
            slot.head = head(self.key(slot), skip);
        }
        slots.sort_unstable_by(|one, other| {
            let by_key = one
                .head
                .cmp(&other.head)
                .then_with(|| self.key(one).cmp(self.key(other)));
            // The later change first.
            by_key.then_with(|| (other.chunk, other.start).cmp(&(one.chunk, one.start)))
        });
        slots.dedup_by(|later, kept| later.head == kept.head && self.key(later).cmp(self.key(kept)) == Ordering::Equal);
        self.slots = slots;
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The change at `index` in the current order.
    pub(super) fn entry(&self, index: usize) -> Option<RunEntry<'_>> {
        let slot = self.slots.get(index)?;
        let bytes = &self.chunks[slot.chunk as usize][slot.start as usize..];
        let (key, rest) = bytes.split_at(slot.key_len as usize);
        let payload = (slot.payload_len != REMOVED).then(|| &rest[..slot.payload_len as usize]);
        Some((key, payload))
    }
}

/// Changes in several runs.
#[derive(Default)]
pub(super) struct Runs {
    /// Oldest first.
    sorted: Vec<Run>,
    open: Run,
}

impl Runs {
    /// Appends a change; returns by how much the memory of all runs grew.
    pub(super) fn push(&mut self, key: &[u8], payload: Option<&[u8]>) -> usize {
        if self.open.bytes() >= RUN_BYTES {
            let mut run = std::mem::take(&mut self.open);
            run.sort();
            self.sorted.push(run);
        }
        let bytes = self.open.bytes();
        self.open.push(key, payload);
        self.open.bytes() - bytes
    }

    /// Takes all runs, sorted, oldest first.
    pub(super) fn take(&mut self) -> Vec<Run> {
        let Self { mut sorted, mut open } = std::mem::take(self);
        open.sort();
        sorted.push(open);
        sorted
    }
}
