//! The sorted cells of a node: their bytes adjacent in one buffer, found by their keys' heads.

use std::cmp::Ordering;

use super::{Below, Entry};
use crate::node::common_prefix;

/// Maximum number of cells in a node.
pub(super) const SLOTS: usize = 64;

/// Minimum length of a skipped prefix: shorter ones are not worth a look at the first key.
const MIN_SKIP: usize = 4;

/// Dead bytes, which belong to no cell any more, are reclaimed once they exceed this number and
/// outnumber the live ones.
const MIN_DEAD: usize = 1 << 10;

/// Larger buffers grow in steps of this size, so that little of them is empty.
const GROWTH_BYTES: usize = 2 << 10;

/// Payload length that marks a removed record.
const REMOVED: u32 = u32::MAX;

/// Position of a cell: its key, then its payload.
#[derive(Clone)]
struct Slot {
    start: u32,
    key_len: u32,
    payload_len: u32,
    below: Below,
}

/// Cells in key order. A search compares *heads*: eight bytes of each key after a prefix common to
/// all keys, adjacent in memory. Then it compares, as a rule, one whole key.
#[derive(Clone, Default)]
pub(super) struct Cells {
    heads: Vec<u64>,
    /// Length of a prefix common to all keys.
    skip: usize,
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    /// Bytes that belong to no cell.
    dead: usize,
}

impl Cells {
    pub(super) fn with_capacity(cells: usize, bytes: usize) -> Self {
        Self {
            heads: Vec::with_capacity(cells),
            slots: Vec::with_capacity(cells),
            bytes: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the cells.
    pub(super) fn cell_bytes(&self) -> usize {
        self.bytes.len() - self.dead
    }

    /// Memory that the cells take, computed from their lengths, so that a clone counts the same.
    pub(super) fn memory_bytes(&self) -> usize {
        capacity(self.bytes.len()) + self.len().next_power_of_two() * (size_of::<u64>() + size_of::<Slot>())
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        let slot = &self.slots[index];
        &self.bytes[slot.start as usize..][..slot.key_len as usize]
    }

    pub(super) fn get(&self, index: usize) -> Option<Entry<'_>> {
        let slot = self.slots.get(index)?;
        let (key, rest) = self.bytes[slot.start as usize..].split_at(slot.key_len as usize);
        Some(Entry {
            key,
            payload: (slot.payload_len != REMOVED).then(|| &rest[..slot.payload_len as usize]),
            below: &slot.below,
        })
    }

    /// Index of the key, or the index where it belongs.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        if self.skip > 0 {
            let prefix = &self.key(0)[..self.skip];
            match key[..key.len().min(self.skip)].cmp(prefix) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.len()),
                Ordering::Equal => (),
            }
        }
        let head = head(key, self.skip);
        let mut index = self.heads.partition_point(|other| *other < head);
        while self.heads.get(index) == Some(&head) {
            match self.key(index).cmp(key) {
                Ordering::Less => index += 1,
                Ordering::Equal => return Ok(index),
                Ordering::Greater => break,
            }
        }
        Err(index)
    }

    /// Appends the bytes of a cell.
    fn append(&mut self, key: &[u8], payload: Option<&[u8]>, below: Below) -> Slot {
        let slot = Slot {
            start: self.bytes.len() as u32,
            key_len: key.len() as u32,
            payload_len: payload.map_or(REMOVED, |payload| payload.len() as u32),
            below,
        };
        let payload = payload.unwrap_or_default();
        let len = self.bytes.len() + key.len() + payload.len();
        if len > self.bytes.capacity() {
            self.bytes.reserve_exact(capacity(len) - self.bytes.len());
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        slot
    }

    pub(super) fn insert(&mut self, index: usize, key: &[u8], payload: Option<&[u8]>, below: Below) {
        let len = self.len();
        let has_prefix = || key.get(..self.skip) == self.key(0).get(..self.skip);
        let fits = len == 0 || self.skip == 0 || has_prefix();
        let slot = self.append(key, payload, below);
        self.slots.insert(index, slot);
        self.heads.insert(index, head(key, self.skip));
        // Updates the prefix now and then, too.
        if !fits || len.is_power_of_two() {
            self.update_skip();
        }
    }

    /// Replaces the payload of a cell. What the cell knows about the layers below stays.
    pub(super) fn replace(&mut self, index: usize, payload: Option<&[u8]>) {
        let slot = &mut self.slots[index];
        let start = (slot.start + slot.key_len) as usize;
        let had = if slot.payload_len == REMOVED {
            0
        } else {
            slot.payload_len as usize
        };
        let new = payload.unwrap_or_default();
        if new.len() <= had {
            self.bytes[start..start + new.len()].copy_from_slice(new);
            slot.payload_len = payload.map_or(REMOVED, |payload| payload.len() as u32);
            self.dead += had - new.len();
        } else {
            let (key, below) = (self.key(index).to_vec(), self.slots[index].below.clone());
            self.dead += key.len() + had;
            self.slots[index] = self.append(&key, payload, below);
        }
        if self.dead > MIN_DEAD && self.dead > self.bytes.len() / 2 {
            *self = self.copy(0, self.len());
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.heads.remove(index);
        let slot = self.slots.remove(index);
        self.dead += slot.key_len as usize;
        if slot.payload_len != REMOVED {
            self.dead += slot.payload_len as usize;
        }
        if self.slots.is_empty() {
            *self = Self::default();
        }
    }

    /// Copies a range of cells, without dead bytes.
    pub(super) fn copy(&self, from: usize, to: usize) -> Self {
        let slots = &self.slots[from..to];
        let len = |slot: &Slot| {
            slot.key_len as usize
                + if slot.payload_len == REMOVED {
                    0
                } else {
                    slot.payload_len as usize
                }
        };
        let mut cells = Self {
            heads: self.heads[from..to].to_vec(),
            skip: self.skip,
            slots: Vec::with_capacity(slots.len()),
            bytes: Vec::with_capacity(slots.iter().map(len).sum()),
            dead: 0,
        };
        for slot in slots {
            let start = cells.bytes.len() as u32;
            let bytes = &self.bytes[slot.start as usize..][..len(slot)];
            cells.bytes.extend_from_slice(bytes);
            cells.slots.push(Slot { start, ..slot.clone() });
        }
        cells.update_skip();
        cells
    }

    /// Updates the common prefix of all keys. Leaves the heads alone if possible: recomputing them
    /// visits each key.
    fn update_skip(&mut self) {
        let len = match self.len() {
            0 | 1 => 0,
            len => common_prefix(self.key(0), self.key(len - 1)),
        };
        let skip = if len < MIN_SKIP { 0 } else { len };
        if skip != self.skip {
            self.skip = skip;
            self.heads = (0..self.len()).map(|index| head(self.key(index), skip)).collect();
        }
    }
}

/// Size of a buffer for `len` bytes.
fn capacity(len: usize) -> usize {
    if len < GROWTH_BYTES {
        len.next_power_of_two()
    } else {
        len.next_multiple_of(GROWTH_BYTES)
    }
}

/// The eight bytes after the first `skip`, zero-padded: a key with a smaller head is smaller.
pub(super) fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => rest.iter().rfold(0, |head, byte| head >> 8 | u64::from(*byte) << 56),
    }
}
