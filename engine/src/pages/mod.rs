//! Pages: page table, drafts, free space, superblocks, and the writing of checkpoints.

mod buffer;
mod cache;
mod checkpoint;
mod draft;
mod extents;
pub(crate) mod free_map;
mod free_space;
mod space;
mod superblock;

pub(crate) use buffer::BlockBuffer;
pub(crate) use cache::{Access, Expected, Pager};
pub(crate) use checkpoint::{FreeMapWriter, WRITE_BYTES, by_address, cut_tail, cut_whole_tail, probe_root, seal};
pub(crate) use draft::Draft;
pub(crate) use extents::{Extent, FreeExtents, is_limit_error};
pub(crate) use free_space::FreeSpace;
pub(crate) use space::{Age, Quarantine, Space};
pub(crate) use superblock::{
    AREA_BYTES, CLAIM_OFFSET, Copies, DATA_FILE, Encryption, Found, SLOT_BYTES, Superblock, is_data_file, read_all,
    read_copies, unlock, unlock_source,
};
