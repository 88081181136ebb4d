//! Checkpoints: dirty nodes go bottom-up to fresh extents, then a superblock makes them the database.
//!
//! Order of a checkpoint: blocks of all dirty nodes and the free map, flush, superblock into the slot of the older one, flush. Until the second
//! flush returns, everything the previous superblock can reach is untouched (invariant I1).

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::block::{self, BlockInfo, BlockRef, Compression, HEADER_BYTES, Kind, Pointer};
use crate::cache::{Access, Expected, Pager};
use crate::error::{Error, Result};
use crate::log::GroupFlush;
use crate::node::{Child, Node};
use crate::storage::StorageFile;
use crate::transaction::Draft;

mod buffer;
mod copies;
mod extents;
pub(crate) mod free_map;
mod superblock;

pub(crate) use buffer::BlockBuffer;
pub(crate) use copies::{Copies, read_copies};
pub(crate) use extents::{Extent, FreeExtents, is_limit_error};
pub(crate) use superblock::{AREA_BYTES, CLAIM_OFFSET, Found, SLOT_BYTES, Superblock, is_ours, read_all};

/// Blocks that lie side by side are written together up to this many bytes.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// The file is cut when at least this many bytes and an eighth of it are free at its end.
const CUT_BYTES: u64 = 1 << 20;

/// When a state was published. Moving blocks publishes a state of the same version again, with the blocks elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Age {
    pub version: u64,
    /// Times that blocks were moved since the database was opened.
    pub moves: u64,
}

/// Extents that a checkpoint made unreachable.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    /// The checkpoint that no longer reaches them. The one before it still does, so they stay until the next is durable.
    pub generation: u64,
    /// Snapshots older than this still reach them.
    pub age: Age,
    pub extents: Vec<Extent>,
}

/// Free space of the data file, as the writer sees it.
#[derive(Debug)]
pub(crate) struct Space {
    pub free: FreeExtents,
    pub quarantine: VecDeque<Quarantine>,
    /// Made unreachable since the last checkpoint, which still reaches them.
    retired: Vec<Extent>,
    /// Starts of the blocks of pages that were written since the last checkpoint: no superblock reaches them.
    ahead: FxHashSet<u64>,
    /// Those of them that the newest version does not reach either.
    retired_ahead: Vec<Extent>,
}

impl Space {
    /// Space of a database that has just been opened: no snapshot reaches back beyond the last checkpoint.
    pub(crate) fn load(pager: &Pager, superblock: &Superblock) -> Result<Self> {
        let mut space = Self {
            free: FreeExtents::new(superblock.file_units),
            quarantine: VecDeque::new(),
            retired: Vec::new(),
            ahead: FxHashSet::default(),
            retired_ahead: Vec::new(),
        };
        if let Some(reference) = &superblock.free_map {
            let bytes = pager.blocks.read(reference, &[Kind::FreeMap], 0)?;
            let first = Superblock::first_data_unit(superblock.unit_shift);
            let (free, extents) = free_map::decode(&bytes, first, superblock.file_units)?;
            for extent in free {
                space.free.free(extent)?;
            }
            if space.free.overlaps(&extents) {
                return Err(Error::corrupt("the free map has an extent in both lists"));
            }
            space.quarantine.push_back(Quarantine {
                generation: superblock.generation,
                age: Age {
                    version: superblock.version,
                    moves: 0,
                },
                extents,
            });
        }
        Ok(space)
    }

    /// Extents that are neither free nor reachable from the newest state.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Extent> + '_ {
        let groups = self.quarantine.iter().flat_map(|group| group.extents.iter());
        groups.chain(self.retired()).copied()
    }

    /// Extents that were made unreachable since the last checkpoint.
    pub(crate) fn retired(&self) -> impl Iterator<Item = &Extent> {
        self.retired.iter().chain(&self.retired_ahead)
    }

    /// Takes note of blocks of pages that were written before the checkpoint that needs them.
    pub(crate) fn written_ahead(&mut self, extents: &[Extent]) {
        self.ahead.extend(extents.iter().map(|extent| extent.start));
    }

    /// Takes note of extents that the version that is about to be published no longer reaches.
    pub(crate) fn retire(&mut self, extents: impl Iterator<Item = Extent>) {
        for extent in extents {
            if self.ahead.remove(&extent.start) {
                self.retired_ahead.push(extent);
            } else {
                self.retired.push(extent);
            }
        }
    }

    /// Frees blocks that were written ahead and given up again before any superblock named them: without that, pages that change often would be
    /// written to new places until the next checkpoint. Only while nobody can see another version than the newest.
    pub(crate) fn release_ahead(&mut self, pager: &Pager) {
        for extent in self.retired_ahead.drain(..) {
            pager.remove(block::PageId::disk(extent.start));
            let freed = self.free.free(extent);
            debug_assert!(freed.is_ok(), "an extent that was allocated can be freed");
        }
    }

    /// A checkpoint is durable; what was retired before it is in quarantine now.
    pub(crate) fn checkpointed(&mut self, quarantine: Quarantine) {
        self.retired.clear();
        self.ahead.clear();
        self.retired_ahead.clear();
        self.quarantine.push_back(quarantine);
    }

    /// Frees all extents that wait for the next checkpoint; `false` if there are none. For recovery only, when that checkpoint is known to
    /// have been durable.
    pub(crate) fn release_all(&mut self) -> Result<bool> {
        let groups = std::mem::take(&mut self.quarantine);
        let any = !groups.is_empty();
        for extent in groups.into_iter().flat_map(|group| group.extents) {
            self.free.free(extent)?;
        }
        Ok(any)
    }

    /// Frees the extents that neither superblock nor any snapshot reaches. `oldest` is the oldest living snapshot's age.
    pub(crate) fn release(&mut self, pager: &Pager, durable: u64, oldest: Option<Age>) -> Result<()> {
        while let Some(group) = self.quarantine.front() {
            let unreachable = group.generation < durable && oldest.is_none_or(|oldest| oldest >= group.age);
            if !unreachable {
                break;
            }
            let group = self.quarantine.pop_front().expect("it has a front");
            for extent in group.extents {
                pager.remove(block::PageId::disk(extent.start));
                self.free.free(extent)?;
            }
        }
        Ok(())
    }
}

/// A dirty page that has its block now.
pub(crate) struct Written {
    pub number: u64,
    pub stamp: u64,
    pub reference: BlockRef,
    pub node: Arc<Node>,
}

/// Why a checkpoint failed.
pub(crate) enum Failure {
    /// Nothing that matters was written; the database goes on from its last state.
    Undone(Error),
    /// It is not known what the disk holds.
    Unknown(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Undone(error)
    }
}

/// Writes blocks for one checkpoint.
pub(crate) struct BlockWriter<'a> {
    pager: &'a Pager,
    draft: &'a Draft,
    pub free: &'a mut FreeExtents,
    generation: u64,
    compression: Compression,
    pub allocated: Vec<Extent>,
    pub written: Vec<Written>,
    buffer: BlockBuffer,
}

impl<'a> BlockWriter<'a> {
    pub(crate) fn new(
        pager: &'a Pager,
        draft: &'a Draft,
        free: &'a mut FreeExtents,
        generation: u64,
        compression: Compression,
    ) -> Self {
        Self {
            pager,
            draft,
            free,
            generation,
            compression,
            allocated: Vec::new(),
            written: Vec::new(),
            buffer: BlockBuffer::new(WRITE_BYTES),
        }
    }

    /// Writes the dirty part of a tree, children before parents; returns the reference to its root on disk.
    pub(crate) fn write_tree(&mut self, root: Child, owner: u32) -> Result<Child> {
        let Pointer::Memory(number) = root.pointer else {
            return Ok(root);
        };
        let mut node = self.dirty_page(number);
        if !node.is_leaf() {
            let mut copy = (*node).clone();
            for index in 0..copy.len() {
                let child = copy.child(index);
                if matches!(child.pointer, Pointer::Memory(_)) {
                    copy.set_child(index, self.write_tree(child, owner)?);
                }
            }
            node = Arc::new(copy);
        }
        let info = BlockInfo {
            kind: if node.is_leaf() { Kind::Leaf } else { Kind::Inner },
            level: node.level(),
            owner,
            generation: self.generation,
        };
        let block_number = self.pager.next_block_number();
        let reference = if node.is_wasteful() {
            // Not kept: the page is in memory as it is, and so may be all others that are written now.
            self.write_block(info, &node.packed().numbered_image(&block_number))?
        } else {
            self.write_block(info, &node.numbered_image(&block_number))?
        };
        let stamp = node.stamp;
        self.written.push(Written {
            number,
            stamp,
            reference,
            node,
        });
        Ok(Child {
            pointer: Pointer::Disk(reference),
            ..root
        })
    }

    /// A page that is in the draft or dirty.
    pub(crate) fn dirty(&self, number: u64) -> Option<Arc<Node>> {
        let own = self.draft.get(number).cloned();
        own.or_else(|| self.pager.dirty_page(number))
    }

    fn dirty_page(&self, number: u64) -> Arc<Node> {
        self.dirty(number)
            .expect("I3: a dirty page lives until a checkpoint has written it")
    }

    fn write_block(&mut self, info: BlockInfo, payload: &[&[u8]]) -> Result<BlockRef> {
        let allocated = &mut self.allocated;
        let note = |extent| allocated.push(extent);
        let blocks = &self.pager.blocks;
        self.buffer
            .put(blocks, self.free, note, self.compression, info, payload)
    }

    /// Writes what is still pending.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.buffer.flush(&self.pager.blocks)
    }

    /// Writes the free map: what is free once this checkpoint is durable, and `leaving`, which the checkpoint before it still reaches.
    pub(crate) fn write_free_map(
        &mut self,
        quarantine: &VecDeque<Quarantine>,
        leaving: &[Extent],
    ) -> Result<Option<BlockRef>> {
        let older = quarantine.iter().map(|group| group.extents.len()).sum::<usize>();
        if self.free.len() + older + leaving.len() == 0 {
            return Ok(None);
        }
        let leaving = sorted(leaving.to_vec());
        let encode = |free: &FreeExtents| {
            let groups = quarantine.iter().flat_map(|group| &group.extents).copied();
            free_map::encode(&sorted(free.iter().chain(groups).collect()), &leaving)
        };
        // The block's own extent is taken before the final list is made, so that the list does not change under it.
        let most = encode(self.free).len() + free_map::MAX_GROWTH;
        let units = self.pager.blocks.units_for(HEADER_BYTES + most);
        if units > block::MAX_BLOCK_UNITS {
            return Err(Error::InvalidArgument {
                what: "the free space is in too many pieces for one free map; use a larger unit size".to_owned(),
            });
        }
        let extent = self.free.allocate(units)?;
        self.allocated.push(extent);
        self.free.trim_end();
        let bytes = encode(self.free);
        let info = BlockInfo {
            kind: Kind::FreeMap,
            level: 0,
            owner: 0,
            generation: self.generation,
        };
        let unit_bytes = self.pager.blocks.unit_bytes();
        let mut block_bytes = Vec::new();
        let mut reference = block::encode(info, &[&bytes], Compression::None, unit_bytes, &mut block_bytes);
        block_bytes.resize(units as usize * unit_bytes, 0);
        reference.unit = extent.start;
        reference.units = units as u16;
        self.pager.blocks.write_units(extent.start, &block_bytes)?;
        Ok(Some(reference))
    }
}

/// Sorted by address. By a heap: in WebAssembly the sort of the standard library is ten times the code.
pub(crate) fn by_address(extents: Vec<Extent>) -> Vec<Extent> {
    BinaryHeap::from(extents).into_sorted_vec()
}

/// Sorted by address, neighbours merged.
fn sorted(extents: Vec<Extent>) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in by_address(extents) {
        match merged.last_mut() {
            Some(last) if last.start + last.units == extent.start => last.units += extent.units,
            _ => merged.push(extent),
        }
    }
    merged
}

/// Makes everything written so far durable and the superblock the newest one.
pub(crate) fn seal(
    file: &dyn StorageFile,
    flush: &GroupFlush,
    superblock: &Superblock,
) -> std::result::Result<(), Failure> {
    // After a failed flush the system may have dropped the written pages, so nothing later can be trusted (I10).
    flush.flush_alone(file).map_err(Failure::Unknown)?;
    superblock.write(file).map_err(Failure::Unknown)?;
    flush.flush_alone(file).map_err(Failure::Unknown)
}

/// Gives the free tail of the file back to the file system if it is long. Failure is harmless: the tail is free either way.
pub(crate) fn cut_tail(file: &dyn StorageFile, superblock: &Superblock, reserve_bytes: u32) {
    cut_tail_from(file, superblock, reserve_bytes, |len| CUT_BYTES.max(len / 8));
}

/// As [`cut_tail`], however short the tail is.
pub(crate) fn cut_whole_tail(file: &dyn StorageFile, superblock: &Superblock, reserve_bytes: u32) {
    cut_tail_from(file, superblock, reserve_bytes, |_| 0);
}

fn cut_tail_from(file: &dyn StorageFile, superblock: &Superblock, reserve_bytes: u32, least: impl Fn(u64) -> u64) {
    let needed = (superblock.file_units << superblock.unit_shift) + u64::from(reserve_bytes);
    if let Ok(len) = file.len()
        && len > needed
        && len - needed >= least(len)
    {
        // The result does not matter: see above.
        let _ = file.set_len(needed);
    }
}

/// Checks that a root's block and the blocks of its first level can be read, without keeping anything.
pub(crate) fn probe_root(pager: &Pager, root: &Child, owner: u32) -> Result<()> {
    if let Pointer::Disk(reference) = &root.pointer {
        let expected = Expected {
            owner,
            level: None,
            count: root.count,
            lower: &[],
            upper: None,
        };
        pager.load(reference, &expected, Access::Point)?;
    }
    Ok(())
}
