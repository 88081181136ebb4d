//! The blocks that something needs, counted by what refers to them.
//!
//! Trees share most of their blocks with the trees before them. A block that is already known is
//! therefore not read again, and a checkpoint costs as much as it changed.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::Files;
use crate::block::{BlockRef, Header, Kind, REF_BYTES};
use crate::cipher::Cipher;
use crate::node::Child;
use crate::node::cell::get_varint;
use crate::pages::DATA_FILE;

/// Longest value that is one block.
const CHUNK_BYTES: u64 = 1_048_544;
const NODE_HEADER_BYTES: usize = 24;
const SLOT_BYTES: usize = 8;
const CHILD_BYTES: usize = REF_BYTES + 8;

/// A block, as references name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct BlockId {
    pub unit: u64,
    pub units: u64,
    checksum: u32,
    raw_len: u32,
}

impl BlockId {
    fn of(reference: &BlockRef) -> Self {
        Self {
            unit: reference.unit,
            units: u64::from(reference.units),
            checksum: reference.checksum,
            raw_len: reference.raw_len,
        }
    }
}

/// What a block is to what refers to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    CatalogNode,
    Node { owner: u32 },
    Value { owner: u32, len: u64 },
    Chunk { owner: u32 },
    FreeMap,
}

impl Role {
    fn owner(self) -> u32 {
        match self {
            Self::CatalogNode | Self::FreeMap => 0,
            Self::Node { owner } | Self::Value { owner, .. } | Self::Chunk { owner } => owner,
        }
    }

    fn has_kind(self, kind: Kind) -> bool {
        match self {
            Self::CatalogNode | Self::Node { .. } => matches!(kind, Kind::Leaf | Kind::Inner),
            Self::Value { len, .. } if len > CHUNK_BYTES => kind == Kind::ValueIndex,
            Self::Value { .. } | Self::Chunk { .. } => kind == Kind::ValueChunk,
            Self::FreeMap => kind == Kind::FreeMap,
        }
    }
}

struct Needed {
    /// References from blocks, superblocks, log records and registered holders.
    count: u32,
    role: Role,
    children: Vec<BlockId>,
}

/// Where blocks are read, and what is known about the file.
pub(super) struct Access<'a> {
    pub files: &'a dyn Files,
    pub cipher: &'a Cipher,
    pub unit_shift: u32,
    /// Units written since the last flush, as start and end; blocks may not lie there. `None`: they
    /// may.
    pub unflushed: Option<&'a BTreeMap<u64, u64>>,
}

/// All needed blocks.
#[derive(Default)]
pub(super) struct Reach {
    blocks: FxHashMap<BlockId, Needed>,
    /// The same by place: start and checksum, end.
    places: BTreeMap<(u64, u32), u64>,
}

impl Reach {
    /// Number of needed blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a reference to a block and, if it is new, to everything below it. What is wrong with the
    /// blocks goes to `problems`; `None` if the block itself cannot be read.
    pub(super) fn hold(
        &mut self,
        access: &Access<'_>,
        reference: &BlockRef,
        role: Role,
        problems: &mut Vec<String>,
    ) -> Option<BlockId> {
        let id = BlockId::of(reference);
        if let Some(unflushed) = access.unflushed
            && overlap(unflushed, id.unit, id.unit + id.units)
        {
            problems.push(format!(
                "{} at units {}..{} was not flushed before the superblock that needs it",
                describe(role),
                id.unit,
                id.unit + id.units
            ));
        }
        if let Some(known) = self.blocks.get_mut(&id) {
            known.count += 1;
            return Some(id);
        }
        let payload = match read(access, reference, role) {
            Ok(payload) => payload,
            Err(problem) => {
                problems.push(format!(
                    "{} at units {}..{} {problem}",
                    describe(role),
                    id.unit,
                    id.unit + id.units
                ));
                return None;
            }
        };
        let Some(below) = children(access, &payload, role) else {
            problems.push(format!("{} at unit {} is malformed", describe(role), id.unit));
            return None;
        };
        let needed = Needed {
            count: 1,
            role,
            children: Vec::new(),
        };
        self.blocks.insert(id, needed);
        self.places.insert((id.unit, id.checksum), id.unit + id.units);
        let mut held = Vec::with_capacity(below.len());
        for (reference, role) in below {
            held.extend(self.hold(access, &reference, role, problems));
        }
        if let Some(needed) = self.blocks.get_mut(&id) {
            needed.children = held;
        }
        Some(id)
    }

    /// Takes a reference away.
    pub(super) fn release(&mut self, id: BlockId) {
        let Some(needed) = self.blocks.get_mut(&id) else {
            return;
        };
        needed.count -= 1;
        if needed.count > 0 {
            return;
        }
        let children = self.blocks.remove(&id).map(|needed| needed.children);
        self.places.remove(&(id.unit, id.checksum));
        for child in children.into_iter().flatten() {
            self.release(child);
        }
    }

    /// A needed block that lies in these units.
    pub(super) fn overlapping(&self, start: u64, end: u64) -> Option<BlockId> {
        let mut before = self.places.range(..(end, 0)).rev();
        // Needed blocks do not overlap, except where a violation was let pass.
        let (&(unit, checksum), _) = before.by_ref().take(4).find(|(_, to)| **to > start)?;
        self.blocks
            .keys()
            .find(|id| (id.unit, id.checksum) == (unit, checksum))
            .copied()
    }

    /// What the block is.
    pub(super) fn describe(&self, id: BlockId) -> String {
        let role = self.blocks.get(&id).map(|needed| describe(needed.role));
        role.unwrap_or_default()
    }

    /// Whether `top` leads to a block.
    pub(super) fn leads(&self, top: BlockId, to: BlockId) -> bool {
        let mut left = vec![top];
        while let Some(id) = left.pop() {
            if id == to {
                return true;
            }
            left.extend(self.blocks.get(&id).into_iter().flat_map(|needed| &needed.children));
        }
        false
    }
}

/// Whether any of the ranges overlaps this one.
pub(super) fn overlap(ranges: &BTreeMap<u64, u64>, start: u64, end: u64) -> bool {
    ranges.range(..end).next_back().is_some_and(|(_, to)| *to > start)
}

fn describe(role: Role) -> String {
    match role {
        Role::CatalogNode => "a node of the catalog".to_owned(),
        Role::Node { owner } => format!("a node of collection {owner}"),
        Role::Value { owner, len } => format!("a value of {len} bytes of collection {owner}"),
        Role::Chunk { owner } => format!("a chunk of a value of collection {owner}"),
        Role::FreeMap => "the free map".to_owned(),
    }
}

/// Reads a block and checks it against the reference.
fn read(access: &Access<'_>, reference: &BlockRef, role: Role) -> Result<Vec<u8>, String> {
    let len = usize::from(reference.units) << access.unit_shift;
    let block = access.files.read(DATA_FILE, reference.unit << access.unit_shift, len);
    let header = Header::parse(&block)
        .filter(|_| block.len() == len)
        .ok_or("is not there")?;
    let (payload, checksum) = header
        .payload(&block, access.cipher, reference.unit)
        .map_err(|error| format!("is damaged: {error}"))?;
    let fits = checksum == reference.checksum
        && header.raw_len == reference.raw_len
        && header.owner == role.owner()
        && role.has_kind(header.kind);
    if fits {
        Ok(payload)
    } else {
        Err("is another block".to_owned())
    }
}

/// What a block refers to; `None` if it is malformed.
fn children(access: &Access<'_>, payload: &[u8], role: Role) -> Option<Vec<(BlockRef, Role)>> {
    match role {
        Role::CatalogNode | Role::Node { .. } => node_children(access, payload, role),
        Role::Value { owner, len } if len > CHUNK_BYTES => {
            let (references, rest) = payload.as_chunks::<REF_BYTES>();
            if !rest.is_empty() {
                return None;
            }
            let chunk = |bytes| Some((BlockRef::decode(bytes)?, Role::Chunk { owner }));
            references.iter().map(chunk).collect()
        }
        Role::Value { .. } | Role::Chunk { .. } | Role::FreeMap => Some(Vec::new()),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let pair = bytes.get(at..)?.first_chunk()?;
    Some(usize::from(u16::from_le_bytes(*pair)))
}

fn node_children(access: &Access<'_>, node: &[u8], role: Role) -> Option<Vec<(BlockRef, Role)>> {
    let level = *node.first()?;
    let mut found = Vec::new();
    for index in 0..u16_at(node, 2)? {
        let slot = NODE_HEADER_BYTES + index * SLOT_BYTES;
        let (offset, suffix) = (u16_at(node, slot)?, u16_at(node, slot + 2)?);
        let cell = node.get(node.len().checked_sub(offset)? + suffix..)?;
        if level > 0 {
            found.push((BlockRef::decode(cell.first_chunk()?)?, role));
            continue;
        }
        let (len, value) = leaf_value(cell)?;
        let mut entry = None;
        match value {
            Err(reference) => {
                let owner = role.owner();
                found.push((reference, Role::Value { owner, len }));
                if role == Role::CatalogNode {
                    entry = Some(read(access, &reference, Role::Value { owner, len }).ok()?);
                }
            }
            Ok(value) => entry = (role == Role::CatalogNode).then(|| value.to_vec()),
        }
        if let Some(entry) = entry {
            let owner = u32::from_le_bytes(*entry.first_chunk()?);
            let root = entry.get(4..4 + CHILD_BYTES)?;
            if let Some(root) = Child::decode_root(root).ok()? {
                found.push((root.pointer, Role::Node { owner }));
            }
        }
    }
    Some(found)
}

/// Length of a leaf cell's value, and the value or the reference to it.
fn leaf_value(cell: &[u8]) -> Option<(u64, Result<&[u8], BlockRef>)> {
    let (meta, mut at) = get_varint(cell)?;
    let number = |at: &mut usize| {
        let (number, len) = get_varint(cell.get(*at..)?)?;
        *at += len;
        Some(number)
    };
    for flag in [4, 2] {
        if meta & flag != 0 {
            number(&mut at)?;
        }
    }
    if meta & 8 != 0 {
        at += usize::try_from(number(&mut at)?).ok()?;
    }
    let len = meta >> 4;
    let rest = cell.get(at..)?;
    if meta & 1 == 0 {
        return Some((len, Ok(rest.get(..usize::try_from(len).ok()?)?)));
    }
    Some((len, Err(BlockRef::decode(rest.first_chunk()?)?)))
}
