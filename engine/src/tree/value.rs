//! Out-of-line values: written once, to blocks of their own, before the record that refers to them
//! is published.
//!
//! A value of at most [`CHUNK_BYTES`] is one chunk block, and the record refers to it. A longer
//! value is cut into chunks. Their references, 16 bytes each, make up an index block, to which the
//! record refers.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Editor;
use crate::block::{BlockFile, BlockInfo, BlockRef, HEADER_BYTES, Kind, REF_BYTES};
use crate::error::{Error, Result};
use crate::node::{LeafCell, ValuePlace};

/// Longest chunk: with its header it fills 1 MiB.
pub(crate) const CHUNK_BYTES: usize = (1 << 20) - HEADER_BYTES;

/// Longest length that a caller puts before a value, in bytes.
const MAX_PREFIX_BYTES: usize = 10;

/// Appends a record's value to `into`.
pub(crate) fn read(blocks: &BlockFile, owner: u32, cell: &LeafCell<'_>, into: &mut Vec<u8>) -> Result<()> {
    let reference = match cell.place {
        ValuePlace::Inline(value) => {
            into.extend_from_slice(value);
            return Ok(());
        }
        ValuePlace::OutOfLine(reference) => reference,
    };
    let before = into.len();
    // Growing by doubling would take up to three times the memory. A caller may prefix the length.
    if into.try_reserve(cell.value_len + MAX_PREFIX_BYTES).is_err() {
        return Err(Error::io(
            "read a value",
            "there is no room for it in memory; read it in parts",
        ));
    }
    for chunk in chunks(blocks, owner, cell.value_len, &reference)? {
        into.extend_from_slice(&blocks.read(&chunk, &[Kind::ValueChunk], owner)?);
    }
    if into.len() - before == cell.value_len {
        Ok(())
    } else {
        into.truncate(before);
        Err(Error::corrupt_at(
            reference.unit,
            "a value has another length than its record says",
        ))
    }
}

/// Calls `each` with the parts of a record's value, none longer than a chunk.
pub(crate) fn read_parts<E: From<Error>>(
    blocks: &BlockFile,
    owner: u32,
    cell: &LeafCell<'_>,
    mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    match cell.place {
        ValuePlace::Inline(value) => each(value),
        ValuePlace::OutOfLine(reference) => {
            for chunk in chunks(blocks, owner, cell.value_len, &reference)? {
                each(&blocks.read(&chunk, &[Kind::ValueChunk], owner)?)?;
            }
            Ok(())
        }
    }
}

/// Part of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ValuePart {
    /// The bytes of the range that the value has.
    pub bytes: Vec<u8>,
    /// Length of the whole value.
    pub value_len: u64,
    /// Version of the commit that wrote the record; 0 inside the optimistic transaction that wrote
    /// it.
    pub version: u64,
}

impl ValuePart {
    /// Cuts a part out of a value in memory.
    pub(crate) fn of(value: &[u8], version: u64, range: &Range<u64>) -> Self {
        Self {
            bytes: value[clamped(range, value.len())].to_vec(),
            value_len: value.len() as u64,
            version,
        }
    }
}

/// The part of the range that a value of `len` bytes has.
#[allow(clippy::cast_possible_truncation, reason = "both ends are at most `len`")]
fn clamped(range: &Range<u64>, len: usize) -> Range<usize> {
    let end = range.end.min(len as u64) as usize;
    (range.start.min(end as u64) as usize)..end
}

/// Reads part of a record's value: only the index and the chunks that overlap it.
pub(crate) fn read_range(blocks: &BlockFile, owner: u32, cell: &LeafCell<'_>, range: &Range<u64>) -> Result<ValuePart> {
    let reference = match cell.place {
        ValuePlace::Inline(value) => return Ok(ValuePart::of(value, cell.version, range)),
        ValuePlace::OutOfLine(reference) => reference,
    };
    let Range { start, end } = clamped(range, cell.value_len);
    let mut part = ValuePart {
        bytes: Vec::with_capacity(end - start),
        value_len: cell.value_len as u64,
        version: cell.version,
    };
    if start == end {
        return Ok(part);
    }
    let list = chunks(blocks, owner, cell.value_len, &reference)?;
    for (number, chunk) in list.iter().enumerate().skip(start / CHUNK_BYTES) {
        let at = number * CHUNK_BYTES;
        if at >= end {
            break;
        }
        let bytes = blocks.read(chunk, &[Kind::ValueChunk], owner)?;
        let wanted = bytes.get(start.saturating_sub(at)..bytes.len().min(end - at));
        part.bytes.extend_from_slice(wanted.unwrap_or_default());
    }
    Ok(part)
}

/// References to all chunks of an out-of-line value.
pub(crate) fn chunks(blocks: &BlockFile, owner: u32, value_len: usize, reference: &BlockRef) -> Result<Vec<BlockRef>> {
    if value_len <= CHUNK_BYTES {
        if reference.raw_len as usize == value_len {
            return Ok(vec![*reference]);
        }
        let what = "a value has another length than its record says";
        return Err(Error::corrupt_at(reference.unit, what));
    }
    let index = blocks.read(reference, &[Kind::ValueIndex], owner)?;
    let (references, rest) = index.as_chunks::<REF_BYTES>();
    let decoded: Option<Vec<_>> = references.iter().map(BlockRef::decode).collect();
    match decoded {
        Some(list) if rest.is_empty() && are_chunks_of(&list, value_len) => Ok(list),
        _ => Err(Error::corrupt_at(
            reference.unit,
            "a value's index of chunks is malformed",
        )),
    }
}

/// References to all blocks of a record's value; none if it is in the leaf.
pub(crate) fn references(blocks: &BlockFile, owner: u32, cell: &LeafCell<'_>) -> Result<Vec<BlockRef>> {
    let ValuePlace::OutOfLine(reference) = cell.place else {
        return Ok(Vec::new());
    };
    let mut list = chunks(blocks, owner, cell.value_len, &reference)?;
    if cell.value_len > CHUNK_BYTES {
        list.push(reference);
    }
    Ok(list)
}

/// Whether all blocks of an out-of-line value are present and intact.
pub(crate) fn is_readable(blocks: &BlockFile, owner: u32, value_len: usize, reference: &BlockRef) -> Result<bool> {
    let check = || {
        for chunk in chunks(blocks, owner, value_len, reference)? {
            blocks.read(&chunk, &[Kind::ValueChunk], owner)?;
        }
        Ok(())
    };
    match check() {
        Ok(()) => Ok(true),
        Err(Error::Corrupt(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the chunks are distinct blocks of the right lengths. So the size of a file bounds the
/// memory that it can claim, and nothing that would be too long is read.
fn are_chunks_of(list: &[BlockRef], value_len: usize) -> bool {
    let mut left = value_len;
    let fit = list.iter().all(|chunk| {
        let len = left.min(CHUNK_BYTES);
        left -= len;
        len > 0 && chunk.raw_len as usize == len
    });
    // A map, since the allocator already uses one of this type.
    let mut units = BTreeMap::new();
    let differ = list.iter().all(|chunk| units.insert(chunk.unit, 0_u64).is_none());
    fit && left == 0 && differ
}

impl Editor<'_> {
    /// Payload of a leaf's cell for this value. A value too long for a leaf is written to new
    /// extents.
    pub(crate) fn payload_of(&mut self, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let place = if self.limits.is_inline(key.len(), value.len()) {
            ValuePlace::Inline(value)
        } else {
            ValuePlace::OutOfLine(self.write_value(value)?)
        };
        let mut payload = Vec::new();
        LeafCell::new(value.len(), place).encode_into(&mut payload);
        Ok(payload)
    }

    /// Writes a value to new extents.
    pub(crate) fn write_value(&mut self, value: &[u8]) -> Result<BlockRef> {
        if value.len() <= CHUNK_BYTES {
            return self.write_value_block(Kind::ValueChunk, value);
        }
        let mut index = Vec::with_capacity(value.len().div_ceil(CHUNK_BYTES) * REF_BYTES);
        for chunk in value.chunks(CHUNK_BYTES) {
            index.extend_from_slice(&self.write_value_block(Kind::ValueChunk, chunk)?.encode());
        }
        self.write_value_block(Kind::ValueIndex, &index)
    }

    /// Writes a value longer than a chunk; `fill` appends the requested number of its next
    /// bytes.
    pub(crate) fn write_long_value(
        &mut self,
        len: usize,
        fill: &mut dyn FnMut(&mut Vec<u8>, usize) -> Result<()>,
    ) -> Result<BlockRef> {
        let mut index = Vec::new();
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let mut left = len;
        while left > 0 {
            let now = left.min(CHUNK_BYTES);
            chunk.clear();
            fill(&mut chunk, now)?;
            index.extend_from_slice(&self.write_value_block(Kind::ValueChunk, &chunk)?.encode());
            left -= now;
        }
        self.write_value_block(Kind::ValueIndex, &index)
    }

    pub(crate) fn write_value_block(&mut self, kind: Kind, payload: &[u8]) -> Result<BlockRef> {
        let info = BlockInfo {
            kind,
            level: 0,
            owner: self.owner,
            generation: self.generation,
        };
        let blocks = &self.pager.blocks;
        let mut bytes = Vec::new();
        let mut reference = blocks.encode(info, &[payload], self.compression, &mut bytes);
        let extent = self.free.allocate(u64::from(reference.units))?;
        self.draft.allocated.push(extent);
        blocks.place(&mut bytes, &mut reference, extent.start);
        blocks.write_units(extent.start, &bytes)?;
        Ok(reference)
    }

    /// Retires the blocks of a record's value.
    pub(crate) fn retire_value(&mut self, cell: &LeafCell<'_>) -> Result<()> {
        for reference in references(&self.pager.blocks, self.owner, cell)? {
            self.draft.retire_value_block(&reference, cell.version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a short file could claim a value of any length.
    #[test]
    fn the_chunks_of_a_value_are_distinct_and_fill_it() {
        let chunk = |unit: u64, raw_len: usize| BlockRef {
            unit,
            units: 1,
            checksum: 0,
            raw_len: raw_len as u32,
        };
        let len = 2 * CHUNK_BYTES + 5;
        let whole = [chunk(2, CHUNK_BYTES), chunk(9, CHUNK_BYTES), chunk(4, 5)];
        assert!(are_chunks_of(&whole, len));
        assert!(!are_chunks_of(&[whole[0], whole[0], whole[2]], len), "one twice");
        assert!(!are_chunks_of(&whole[..2], len), "one is missing");
        assert!(
            !are_chunks_of(&[whole[0], whole[1], chunk(4, 6)], len),
            "one is too long"
        );
        assert!(!are_chunks_of(&whole, len - 5), "one too many");
    }
}
