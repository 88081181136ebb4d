//! The slotted page: keys with values (leaf) or keys with child references (inner node).
//!
//! ```text
//! header, 24 bytes, little endian
//!  0  u8   level, 0 for a leaf
//!  1  u8   flags: bit 0 has an upper fence, bit 1 the subtree holds out-of-line values
//!  2  u16  number of cells
//!  4  u16  bytes of the heap, dead ones included
//!  6  u16  dead bytes in the heap
//!  8  u16  length of the prefix that all keys share
//! 10  u16  length of the lower fence
//! 12  u16  length of the upper fence
//! 14  u16  0
//! 16  u16  offset of the lower fence
//! 18  u16  offset of the upper fence
//! 20  u32  number: orders the nodes of one generation by when they were written; any value is valid
//! then the slots, 8 bytes each, in key order
//!  0  u16  offset of the cell
//!  2  u16  length of the key's suffix (the key without the prefix)
//!  4  u32  head: the first 4 bytes of the suffix, big-endian order, zero padded
//! then a gap, then the heap, which grows downward from the end
//! ```
//! All offsets count from the **end** of the page, so the gap is left out on disk: the image
//! consists of header, slots and heap, and a page of any capacity holds the same bytes. A node
//! covers the keys `lower <= key < upper`. The prefix is the common prefix of the two fences, so no
//! insert can break it. A cell is the suffix followed by the payload of [`cell`]. In an inner node
//! the key of cell 0 is the lower fence itself and is stored empty.

use std::cmp::Ordering;

use crate::block::{BlockRef, REF_BYTES};
use links::Links;

pub(crate) mod cell;
mod limits;
mod links;
mod validate;

pub(crate) use cell::{Child, LeafCell, ValuePlace};
pub(crate) use limits::Limits;

pub(crate) const HEADER_BYTES: usize = 24;
/// Offset of the block number in the header.
const NUMBER_AT: usize = 20;
pub(crate) const SLOT_BYTES: usize = 8;
const HEAD_BYTES: usize = 4;
const FLAG_UPPER: u8 = 1;
const FLAG_OVERFLOW: u8 = 2;

/// One page in memory.
#[derive(Clone)]
pub(crate) struct Node {
    bytes: Vec<u8>,
    links: Links,
}

impl Node {
    /// Creates an empty node for the keys `lower <= key < upper`.
    pub(crate) fn new(capacity: usize, level: u8, lower: &[u8], upper: Option<&[u8]>) -> Self {
        let mut node = Self {
            bytes: vec![0; capacity],
            links: Links::default(),
        };
        node.bytes[0] = level;
        node.bytes[1] = if upper.is_some() { FLAG_UPPER } else { 0 };
        let lower_at = node.push_heap(lower);
        let upper_at = node.push_heap(upper.unwrap_or_default());
        node.put_u16(8, upper.map_or(0, |upper| common_prefix(lower, upper)));
        node.put_u16(10, lower.len());
        node.put_u16(12, upper.map_or(0, <[u8]>::len));
        node.put_u16(16, lower_at);
        node.put_u16(18, upper_at);
        node
    }

    /// Wraps a page read from a block; [`validate`](Self::validate) it before any other use.
    pub(crate) fn from_image(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            links: Links::default(),
        }
    }

    /// Returns the page's buffer.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Copies the page, for changes, with a capacity of up to `capacity` bytes.
    pub(crate) fn writable_copy(&self, capacity: usize) -> Self {
        let mut bytes = vec![0; capacity.max(self.bytes.len())];
        let (front, heap) = self.image();
        bytes[..front.len()].copy_from_slice(front);
        let heap_at = bytes.len() - heap.len();
        bytes[heap_at..].copy_from_slice(heap);
        Self {
            bytes,
            links: Links::default(),
        }
    }

    /// The bytes written to disk, in this order: header with slots, then heap.
    pub(crate) fn image(&self) -> (&[u8], &[u8]) {
        let heap_at = self.bytes.len() - self.heap_bytes();
        (&self.bytes[..self.slots_end()], &self.bytes[heap_at..])
    }

    /// As [`image`](Self::image), with the block's number within its generation in the header.
    pub(crate) fn numbered_image<'a>(&'a self, number: &'a [u8; 4]) -> [&'a [u8]; 4] {
        let (front, heap) = self.image();
        [&front[..NUMBER_AT], number, &front[NUMBER_AT + number.len()..], heap]
    }

    /// The block number stored in the header.
    pub(crate) fn block_number(&self) -> u32 {
        self.bytes[NUMBER_AT..]
            .first_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Memory that the page takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<Self>()
    }

    pub(crate) fn level(&self) -> u8 {
        self.bytes[0]
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// Number of cells.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.get_u16(2)
    }

    pub(crate) fn has_overflow(&self) -> bool {
        self.bytes[1] & FLAG_OVERFLOW != 0
    }

    pub(crate) fn mark_overflow(&mut self) {
        self.bytes[1] |= FLAG_OVERFLOW;
    }

    pub(crate) fn lower_fence(&self) -> &[u8] {
        self.at_end(self.get_u16(16), self.get_u16(10))
    }

    /// `None` if there is no upper limit.
    pub(crate) fn upper_fence(&self) -> Option<&[u8]> {
        (self.bytes[1] & FLAG_UPPER != 0).then(|| self.at_end(self.get_u16(18), self.get_u16(12)))
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.lower_fence()[..self.prefix_len()]
    }

    pub(crate) fn prefix_len(&self) -> usize {
        self.get_u16(8)
    }

    /// Key of cell `index` without the prefix.
    pub(crate) fn suffix(&self, index: usize) -> &[u8] {
        if index == 0 && !self.is_leaf() {
            return &self.lower_fence()[self.prefix_len()..];
        }
        let slot = self.slot(index);
        self.at_end(slot.offset, slot.suffix_len)
    }

    /// Replaces `into` with the full key of cell `index`.
    pub(crate) fn key_into(&self, index: usize, into: &mut Vec<u8>) {
        let (prefix, suffix) = (self.prefix(), self.suffix(index));
        into.clear();
        into.reserve(prefix.len() + suffix.len());
        into.extend_from_slice(prefix);
        into.extend_from_slice(suffix);
    }

    /// Turns the key of another cell of this leaf into that of cell `index`. Returns its payload's
    /// offset; `None`, with nothing changed, if there is no such cell.
    #[cfg_attr(not(target_family = "wasm"), inline)]
    pub(crate) fn step_to(&self, index: usize, key: &mut Vec<u8>) -> Option<usize> {
        let (header, rest) = self.bytes.split_first_chunk::<HEADER_BYTES>()?;
        if index >= usize::from(u16::from_le_bytes([header[2], header[3]])) {
            return None;
        }
        let slot = Slot::decode(*rest.as_chunks().0.get(index)?);
        let start = self.bytes.len().checked_sub(slot.offset)?;
        let payload = start + slot.suffix_len;
        let suffix = self.bytes.get(start..payload)?;
        let prefix_len = usize::from(u16::from_le_bytes([header[8], header[9]]));
        key.truncate(prefix_len);
        if slot.suffix_len <= HEAD_BYTES {
            // A copy of constant length takes a fraction of the time.
            key.extend_from_slice(&slot.head.to_be_bytes());
            key.truncate(prefix_len + slot.suffix_len);
        } else {
            key.extend_from_slice(suffix);
        }
        Some(payload)
    }

    /// Offset of the payload of cell `index`.
    pub(crate) fn payload_at(&self, index: usize) -> usize {
        self.bytes.len() - self.cell(index).1.len()
    }

    pub(crate) fn key(&self, index: usize) -> Vec<u8> {
        let mut key = Vec::with_capacity(64);
        self.key_into(index, &mut key);
        key
    }

    /// Payload of cell `index`, after its suffix.
    pub(crate) fn payload(&self, index: usize) -> &[u8] {
        let (_, rest) = self.cell(index);
        let len = if self.is_leaf() {
            cell::leaf_payload_len(rest)
        } else {
            Child::BYTES
        };
        &rest[..len]
    }

    /// Record `index` of a leaf.
    #[inline]
    pub(crate) fn record(&self, index: usize) -> LeafCell<'_> {
        LeafCell::decode(self.cell(index).1)
    }

    /// Value and expiry of a leaf's record, decoding nothing else; `None` if the value is out of
    /// line.
    #[inline]
    pub(crate) fn inline_value(&self, index: usize) -> Option<(&[u8], u64)> {
        cell::inline_value(self.cell(index).1)
    }

    /// As [`inline_value`](Self::inline_value), but of a separate payload.
    #[inline]
    pub(crate) fn inline_value_of(payload: &[u8]) -> Option<&[u8]> {
        Some(cell::inline_value(payload)?.0)
    }

    /// As [`inline_value`](Self::inline_value), for a known offset of the payload.
    #[inline]
    pub(crate) fn inline_value_at(&self, payload: usize) -> Option<&[u8]> {
        Some(cell::inline_value(self.bytes.get(payload..)?)?.0)
    }

    /// Child `index` of an inner node.
    pub(crate) fn child(&self, index: usize) -> Child {
        Child::decode(self.payload(index)).expect("child references were validated when the node was read")
    }

    /// Lower and upper fence that child `index` must have.
    pub(crate) fn child_fences(&self, index: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let upper = if index + 1 < self.len() {
            Some(self.key(index + 1))
        } else {
            self.upper_fence().map(<[u8]>::to_vec)
        };
        (self.key(index), upper)
    }

    /// Number of records in children `from..to`.
    pub(crate) fn count_children(&self, from: usize, to: usize) -> u64 {
        (from..to).map(|index| self.child_count(index)).sum()
    }

    pub(crate) fn child_count(&self, index: usize) -> u64 {
        let payload = self.payload(index);
        Child::decode_count(&payload[REF_BYTES..])
    }

    /// Number of records in the subtree.
    pub(crate) fn total(&self) -> u64 {
        if self.is_leaf() {
            self.len() as u64
        } else {
            self.count_children(0, self.len())
        }
    }

    /// This node as its parent refers to it, with its block at `pointer`.
    pub(crate) fn as_child(&self, pointer: BlockRef) -> Child {
        Child {
            pointer,
            count: self.total(),
            has_overflow: self.has_overflow(),
        }
    }

    fn slots_end(&self) -> usize {
        HEADER_BYTES + self.len() * SLOT_BYTES
    }

    fn heap_bytes(&self) -> usize {
        self.get_u16(4)
    }

    fn garbage(&self) -> usize {
        self.get_u16(6)
    }

    /// Bytes in use: header, slots, fences and live cells.
    pub(crate) fn used_bytes(&self) -> usize {
        self.slots_end() + self.heap_bytes() - self.garbage()
    }

    fn gap(&self) -> usize {
        self.bytes.len() - self.slots_end() - self.heap_bytes()
    }

    #[inline]
    fn get_u16(&self, at: usize) -> usize {
        let pair = &self.bytes[at..at + 2];
        usize::from(u16::from_le_bytes([pair[0], pair[1]]))
    }

    fn put_u16(&mut self, at: usize, value: usize) {
        debug_assert!(u16::try_from(value).is_ok());
        self.bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }

    #[inline]
    fn at_end(&self, offset: usize, len: usize) -> &[u8] {
        let start = self.bytes.len() - offset;
        &self.bytes[start..start + len]
    }

    fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        self.bytes[HEADER_BYTES..self.slots_end()].as_chunks().0
    }

    /// Stored suffix of cell `index`, and the bytes from its payload to the end of the page.
    #[cfg_attr(not(target_family = "wasm"), inline)]
    fn cell(&self, index: usize) -> (&[u8], &[u8]) {
        let slot = self.slot(index);
        let start = self.bytes.len() - slot.offset;
        self.bytes[start..].split_at(slot.suffix_len)
    }

    #[cfg_attr(not(target_family = "wasm"), inline)]
    fn slot(&self, index: usize) -> Slot {
        let at = HEADER_BYTES + index * SLOT_BYTES;
        Slot::decode(*self.bytes[at..].first_chunk().expect("the slots lie inside the page"))
    }
}

/// An entry of the slot array.
#[derive(Clone, Copy)]
struct Slot {
    offset: usize,
    suffix_len: usize,
    head: u32,
}

impl Slot {
    #[inline]
    fn decode(bytes: [u8; SLOT_BYTES]) -> Self {
        Self {
            offset: usize::from(u16::from_le_bytes([bytes[0], bytes[1]])),
            suffix_len: usize::from(u16::from_le_bytes([bytes[2], bytes[3]])),
            head: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    fn encode(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..2].copy_from_slice(&(self.offset as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&(self.suffix_len as u16).to_le_bytes());
        bytes[4..].copy_from_slice(&self.head.to_le_bytes());
        bytes
    }
}

/// The first four bytes of a suffix as a number that compares like the bytes. Shorter suffixes are
/// zero padded, so equal heads still require a full comparison.
#[cfg_attr(not(target_family = "wasm"), inline)]
fn head_of(suffix: &[u8]) -> u32 {
    match *suffix {
        [a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d]),
        [a, b, c] => u32::from_be_bytes([a, b, c, 0]),
        [a, b] => u32::from_be_bytes([a, b, 0, 0]),
        [a] => u32::from_be_bytes([a, 0, 0, 0]),
        [] => 0,
    }
}

/// Length of the longest common prefix.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        if a != b {
            break;
        }
        len += 8;
    }
    let rest = a[len..].iter().zip(&b[len..]);
    len + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;

impl Node {
    /// Inserts a cell before position `index`; `false` if it does not fit. `key` must lie within
    /// the fences.
    pub(crate) fn insert(&mut self, index: usize, key: &[u8], payload: &[u8]) -> bool {
        let is_first_child = index == 0 && !self.is_leaf();
        let suffix = if is_first_child { &[] } else { &key[self.prefix_len()..] };
        let needed = SLOT_BYTES + suffix.len() + payload.len();
        if self.gap() < needed {
            if self.gap() + self.garbage() < needed {
                return false;
            }
            self.compact();
        }
        self.push_heap(payload);
        let offset = self.push_heap(suffix);
        let slot = Slot {
            offset,
            suffix_len: suffix.len(),
            head: head_of(suffix),
        };
        let at = HEADER_BYTES + index * SLOT_BYTES;
        let end = self.slots_end();
        self.bytes.copy_within(at..end, at + SLOT_BYTES);
        self.bytes[at..at + SLOT_BYTES].copy_from_slice(&slot.encode());
        self.put_u16(2, self.len() + 1);
        true
    }

    /// Replaces the payload of cell `index`; `false`, with nothing changed, if it does not fit.
    pub(crate) fn replace_payload(&mut self, index: usize, payload: &[u8]) -> bool {
        let slot = self.slot(index);
        let old_len = self.payload(index).len();
        let start = self.bytes.len() - slot.offset + slot.suffix_len;
        if payload.len() <= old_len {
            self.bytes[start..start + payload.len()].copy_from_slice(payload);
            self.put_u16(6, self.garbage() + old_len - payload.len());
            return true;
        }
        let needed = slot.suffix_len + payload.len();
        let freed = slot.suffix_len + old_len;
        if self.gap() < needed && self.gap() + self.garbage() + freed < needed {
            return false;
        }
        let suffix = self.suffix(index).to_vec();
        self.put_u16(6, self.garbage() + freed);
        if self.gap() < needed {
            // The compaction must not copy the old cell, so its slot is removed first.
            let at = HEADER_BYTES + index * SLOT_BYTES;
            self.remove_slot(at);
            self.compact();
            let end = self.slots_end();
            self.bytes.copy_within(at..end, at + SLOT_BYTES);
            self.put_u16(2, self.len() + 1);
        }
        self.push_heap(payload);
        let offset = self.push_heap(&suffix);
        let at = HEADER_BYTES + index * SLOT_BYTES;
        let moved = Slot { offset, ..slot };
        self.bytes[at..at + SLOT_BYTES].copy_from_slice(&moved.encode());
        true
    }

    /// Replaces the reference to child `index`; its key stays. No reader may descend through the
    /// node yet.
    pub(crate) fn set_child(&mut self, index: usize, child: Child) {
        let slot = self.slot(index);
        let start = self.bytes.len() - slot.offset + slot.suffix_len;
        self.bytes[start..start + Child::BYTES].copy_from_slice(&child.encode());
        if child.has_overflow {
            self.mark_overflow();
        }
    }

    fn remove_slot(&mut self, at: usize) {
        let end = self.slots_end();
        self.bytes.copy_within(at + SLOT_BYTES..end, at);
        self.put_u16(2, self.len() - 1);
    }

    /// Appends to the heap; returns the offset from the end of the page.
    pub(super) fn push_heap(&mut self, bytes: &[u8]) -> usize {
        let heap = self.heap_bytes() + bytes.len();
        let start = self.bytes.len() - heap;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.put_u16(4, heap);
        heap
    }

    /// Compacts the live cells, so that the dead bytes join the gap.
    fn compact(&mut self) {
        let old = self.clone();
        self.put_u16(4, 0);
        self.put_u16(6, 0);
        let lower_at = self.push_heap(old.lower_fence());
        let upper_at = self.push_heap(old.upper_fence().unwrap_or_default());
        self.put_u16(16, lower_at);
        self.put_u16(18, upper_at);
        for index in 0..old.len() {
            let slot = old.slot(index);
            self.push_heap(old.payload(index));
            let offset = self.push_heap(old.at_end(slot.offset, slot.suffix_len));
            let at = HEADER_BYTES + index * SLOT_BYTES;
            self.bytes[at..at + SLOT_BYTES].copy_from_slice(&Slot { offset, ..slot }.encode());
        }
    }
}

impl Node {
    /// Position of the first cell whose key is not less than `key`, and whether it equals `key`. In
    /// an inner node, cell 0 counts as less than or equal to everything the node covers.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> (usize, bool) {
        // Keys are only looked up in nodes whose fences cover them (I6), so they share the prefix.
        debug_assert!(
            key.starts_with(self.prefix()),
            "the node's fences cover the keys that are looked up in it"
        );
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        let head = head_of(suffix);
        let slots = &self.bytes[HEADER_BYTES..HEADER_BYTES + self.len() * SLOT_BYTES];
        let slots = slots.as_chunks::<SLOT_BYTES>().0;
        // In an inner node, cell 0 has no key.
        let first = usize::from(!self.is_leaf()).min(slots.len());
        let slots = &slots[first..];
        let below = slots.partition_point(|slot| Slot::decode(*slot).head < head);
        let at_least = &slots[below..];
        let is_same = |slot: &[u8; SLOT_BYTES]| Slot::decode(*slot).head == head;
        let same = match at_least {
            [slot, ..] if !is_same(slot) => 0,
            // Usually heads differ.
            [_, next, ..] if is_same(next) => at_least.partition_point(is_same),
            _ => at_least.len().min(1),
        };
        let word = word_of(suffix);
        let found = at_least[..same].binary_search_by(|slot| {
            let slot = Slot::decode(*slot);
            compare(self.at_end(slot.offset, slot.suffix_len), suffix, word)
        });
        match found {
            Ok(index) => (first + below + index, true),
            Err(index) => (first + below + index, false),
        }
    }

    /// As [`lower_bound`](Self::lower_bound), in a leaf whose fences need not cover the key.
    pub(crate) fn lower_bound_outside(&self, key: &[u8]) -> (usize, bool) {
        let start = &key[..key.len().min(self.prefix_len())];
        match start.cmp(self.prefix()) {
            Ordering::Less => (0, false),
            Ordering::Equal => self.lower_bound(key),
            Ordering::Greater => (self.len(), false),
        }
    }

    /// Index of the child of an inner node that covers `key`.
    pub(crate) fn child_index(&self, key: &[u8]) -> usize {
        match self.lower_bound(key) {
            (index, true) => index,
            (index, false) => index.saturating_sub(1),
        }
    }
}

const WORD_BYTES: usize = 8;

/// Compares a stored suffix with one whose word is known.
#[inline]
fn compare(stored: &[u8], suffix: &[u8], word: u64) -> Ordering {
    word_of(stored).cmp(&word).then_with(|| {
        if stored.len().max(suffix.len()) <= WORD_BYTES {
            // They differ in trailing zeros, if at all.
            stored.len().cmp(&suffix.len())
        } else {
            stored.cmp(suffix)
        }
    })
}

/// As [`head_of`], with eight bytes.
#[inline]
fn word_of(suffix: &[u8]) -> u64 {
    if let Some(first) = suffix.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let head = u64::from(head_of(suffix)) << 32;
    match suffix.last_chunk::<HEAD_BYTES>() {
        // The last four bytes, without those already in the head.
        Some(last) => head | (u64::from(u32::from_be_bytes(*last)) << (8 * (WORD_BYTES - suffix.len())) & 0xFFFF_FFFF),
        None => head,
    }
}
