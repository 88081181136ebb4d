//! The damaged file, read through one window of fixed maximum size.

use std::sync::Arc;

use super::scan::Found;
use crate::block::Header;
use crate::cipher::Cipher;
use crate::error::{Error, Result};
use crate::node::{Limits, Node};
use crate::storage::StorageFile;

/// Bytes per sequential read.
const WINDOW_BYTES: usize = 2 << 20;
/// Bytes per random read.
const JUMP_BYTES: usize = 64 << 10;
/// Unit of reading if the window cannot be read as a whole: the sector of most disks.
const PIECE_BYTES: usize = 4096;
/// Longest node a block can hold.
pub(super) const MAX_NODE_BYTES: u32 = u16::MAX as u32;

pub(super) struct Source {
    file: Arc<dyn StorageFile>,
    pub(super) cipher: Cipher,
    /// Length of a unit, once it is known: sealed blocks are bound to theirs.
    pub(super) unit_shift: u32,
    pub(super) len: u64,
    window: Vec<u8>,
    at: u64,
    /// Pieces that the storage could not read; zeros stand in for them.
    pub(super) unreadable_pieces: u64,
}

impl Source {
    pub(super) fn new(file: Arc<dyn StorageFile>, cipher: Cipher, unit_shift: u32) -> Result<Self> {
        let len = file.len()?;
        Ok(Self {
            file,
            cipher,
            unit_shift,
            len,
            window: Vec::new(),
            at: 0,
            unreadable_pieces: 0,
        })
    }

    pub(super) fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// Returns `len` bytes at `offset`; `None` if the file or the window is too short for them.
    pub(super) fn bytes(&mut self, offset: u64, len: usize) -> Option<&[u8]> {
        let end = offset.checked_add(len as u64)?;
        if end > self.len || len > WINDOW_BYTES {
            return None;
        }
        if offset < self.at || end > self.at + self.window.len() as u64 {
            self.load(offset, len);
        }
        let start = (offset - self.at) as usize;
        self.window.get(start..start + len)
    }

    fn load(&mut self, offset: u64, needed: usize) {
        // Only sequential reads are likely to want the bytes that follow.
        let continues = (self.at..=self.at + self.window.len() as u64).contains(&offset);
        let wanted = if continues {
            WINDOW_BYTES
        } else {
            needed.max(JUMP_BYTES)
        };
        self.at = offset;
        let len = (self.len - offset).min(wanted as u64) as usize;
        self.window.resize(len, 0);
        if self.file.read_at(offset, &mut self.window).is_ok() {
            return;
        }
        let mut at = offset;
        for piece in self.window.chunks_mut(PIECE_BYTES) {
            if self.file.read_at(at, piece).is_err() {
                piece.fill(0);
                self.unreadable_pieces += 1;
            }
            at += piece.len() as u64;
        }
    }

    /// Reads a node that a scan found.
    pub(super) fn node(&mut self, found: &Found) -> Result<Node> {
        let (header, node) = self.node_at(found.offset())?;
        if header.checksum == found.checksum {
            Ok(node)
        } else {
            Err(Error::corrupt("a block changed while it was read"))
        }
    }

    /// Reads the node at byte `offset`, if a complete and valid one begins there. The header then has
    /// the checksum that a reference to it repeats.
    pub(super) fn node_at(&mut self, offset: u64) -> Result<(Header, Node)> {
        let refused = || Error::corrupt(format!("there is no valid node at byte {offset}"));
        let mut header = self.header(offset).ok_or_else(refused)?;
        if header.raw_len > MAX_NODE_BYTES || header.stored_len > MAX_NODE_BYTES {
            return Err(refused());
        }
        let (cipher, unit) = (self.cipher.clone(), offset >> self.unit_shift);
        let block = self.bytes(offset, header.block_bytes() as usize).ok_or_else(refused)?;
        let (payload, checksum) = header.payload(block, &cipher, unit)?;
        let node = Node::from_image(payload);
        node.validate(&Limits::NONE)?;
        header.checksum = checksum;
        Ok((header, node))
    }

    pub(super) fn header(&mut self, offset: u64) -> Option<Header> {
        Header::parse(self.bytes(offset, crate::block::HEADER_BYTES)?)
    }
}
