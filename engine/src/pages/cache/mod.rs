//! The page table: a byte-bounded cache of clean pages together with the set of dirty ones.
//!
//! A published page never changes (invariant I3); a writer works on copies and publishes those. Clean pages leave by
//! second chance in insertion order; dirty pages stay until a checkpoint has written them. After a checkpoint, snapshots that still name a page by
//! its memory number find its block through a redirection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};

use rustc_hash::FxHashMap;

use counter::Counter;

use crate::block::{BlockFile, BlockRef, Kind, PageId, Pointer};
use crate::error::Result;
use crate::node::{Limits, Node};
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};

mod counter;

const SHARDS: usize = if cfg!(target_family = "wasm") { 1 } else { 16 };

/// What a parent says about the node it refers to.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub owner: u32,
    /// Level of the node; `None` for a root.
    pub level: Option<u8>,
    pub count: u64,
    pub lower: &'a [u8],
    pub upper: Option<&'a [u8]>,
}

impl Expected<'_> {
    /// A root with so many records below it: it covers all keys, on any level.
    pub(crate) fn root(owner: u32, count: u64) -> Self {
        Self {
            owner,
            level: None,
            count,
            lower: &[],
            upper: None,
        }
    }
}

/// How a page that is not in memory should be treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Keep it.
    Point,
    /// Keep it only while there is free room: a scan must not empty the cache.
    Scan,
}

fn shard_of(id: PageId) -> usize {
    let mixed = id.word().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    mixed as usize % SHARDS
}

enum Entry {
    Clean(Arc<Node>),
    Dirty(Arc<Node>),
    Redirected(BlockRef),
}

#[derive(Default)]
struct Shard {
    entries: FxHashMap<PageId, Entry>,
    queue: VecDeque<PageId>,
}

impl Shard {
    /// Puts a page at the end of the queue. Pages that were removed otherwise leave their place behind; those are dropped once they
    /// outnumber the pages.
    fn enqueue(&mut self, id: PageId) {
        if self.queue.len() > 2 * self.entries.len() + 64 {
            // A map because the allocator has one of this type already.
            let mut seen = BTreeMap::new();
            let entries = &self.entries;
            self.queue.retain(|id| {
                matches!(entries.get(id), Some(Entry::Clean(_))) && seen.insert(id.word(), 0_u64).is_none()
            });
        }
        self.queue.push_back(id);
    }
}

pub(crate) struct Pager {
    pub(crate) blocks: BlockFile,
    limits: Limits,
    shards: Vec<Mutex<Shard>>,
    cache_bytes: usize,
    clean_bytes: AtomicUsize,
    dirty_bytes: AtomicUsize,
    /// Bytes of the running transaction.
    reserved_bytes: AtomicUsize,
    next_number: AtomicU64,
    block_number: AtomicU32,
    /// Where the next eviction begins.
    next_shard: AtomicUsize,
    pub(crate) hits: Counter,
    pub(crate) misses: AtomicU64,
}

impl Pager {
    pub(crate) fn new(blocks: BlockFile, limits: Limits, cache_bytes: usize) -> Self {
        Self {
            blocks,
            limits,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            cache_bytes,
            clean_bytes: AtomicUsize::new(0),
            dirty_bytes: AtomicUsize::new(0),
            reserved_bytes: AtomicUsize::new(0),
            next_number: AtomicU64::new(1),
            block_number: AtomicU32::new(1),
            next_shard: AtomicUsize::new(0),
            hits: Counter::new(),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn clean_bytes(&self) -> usize {
        self.clean_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    fn used_bytes(&self) -> usize {
        self.clean_bytes() + self.dirty_bytes() + self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Leaves room for a transaction, by giving up clean pages.
    pub(crate) fn reserve(&self, bytes: usize) {
        let before = self.reserved_bytes.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.evict();
        }
    }

    /// Orders the blocks of one generation: of two that cover a key, the one with the higher number counts when a recovery finds both.
    pub(crate) fn next_block_number(&self) -> [u8; 4] {
        self.block_number.fetch_add(1, Ordering::Relaxed).to_le_bytes()
    }

    /// A number that no page of this process had before.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    fn shard(&self, id: PageId) -> MutexGuard<'_, Shard> {
        self.nth_shard(shard_of(id))
    }

    fn nth_shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        // A panic elsewhere leaves the maps whole: every change below is a single insertion or removal.
        self.shards[number % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The page if it is in memory, else the block that holds it.
    pub(crate) fn lookup(&self, pointer: &Pointer) -> std::result::Result<Arc<Node>, BlockRef> {
        let id = pointer.page_id();
        let redirected = match self.shard(id).entries.get(&id) {
            Some(Entry::Clean(node) | Entry::Dirty(node)) => {
                node.mark_used();
                self.hits.add_one();
                return Ok(Arc::clone(node));
            }
            Some(Entry::Redirected(reference)) => *reference,
            None => match pointer {
                Pointer::Disk(reference) => return Err(*reference),
                Pointer::Memory(number) => unreachable!("I3: page {number} lives as long as anything names it"),
            },
        };
        self.lookup(&Pointer::Disk(redirected))
    }

    /// Child `index` of a published node, if it is in memory and a descent went there before.
    #[cfg(not(target_family = "wasm"))]
    #[inline]
    pub(crate) fn linked(&self, parent: &Node, index: usize) -> Option<Arc<Node>> {
        let node = parent.linked(index)?;
        self.hits.add_one();
        Some(node)
    }

    /// Reads a page that [`lookup`](Self::lookup) did not find and checks it against what its parent says.
    pub(crate) fn load(&self, reference: &BlockRef, expected: &Expected<'_>, access: Access) -> Result<Arc<Node>> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new(self.read(reference, expected)?);
        let full = self.used_bytes() + node.memory_bytes() > self.cache_bytes;
        if access == Access::Point || !node.is_leaf() || !full {
            self.insert_clean(reference.unit, Arc::clone(&node));
        }
        Ok(node)
    }

    fn read(&self, reference: &BlockRef, expected: &Expected<'_>) -> Result<Node> {
        let place = |error: crate::Error| error.covering(expected.lower, expected.upper);
        let image = self
            .blocks
            .read(reference, &[Kind::Leaf, Kind::Inner], expected.owner)
            .map_err(place)?;
        let node = Node::from_image(image);
        node.validate(&self.limits).map_err(place)?;
        let damaged = |what: &str| place(crate::Error::corrupt_at(reference.unit, what));
        // I6: a node covers exactly what its parent says, one level below it.
        if node.lower_fence() != expected.lower || node.upper_fence() != expected.upper {
            return Err(damaged("a node does not cover the keys its parent says"));
        }
        if expected.level.is_some_and(|level| level != node.level()) {
            return Err(damaged("a node is not on the level below its parent"));
        }
        // I12: positions are followed down the tree by these counts.
        if node.total() != expected.count {
            return Err(damaged("a node holds another number of records than its parent says"));
        }
        Ok(node)
    }

    pub(crate) fn insert_clean(&self, unit: u64, node: Arc<Node>) {
        let id = PageId::disk(unit);
        self.clean_bytes.fetch_add(node.memory_bytes(), Ordering::Relaxed);
        node.take_used();
        let mut shard = self.shard(id);
        let old = shard.entries.insert(id, Entry::Clean(node));
        match old {
            Some(Entry::Clean(node)) => {
                self.clean_bytes.fetch_sub(node.memory_bytes(), Ordering::Relaxed);
            }
            _ => shard.enqueue(id),
        }
        drop(shard);
        self.evict();
    }

    /// Second chance in one shard after the other, so that all of them lose alike.
    fn evict(&self) {
        let mut empty = 0;
        while self.used_bytes() > self.cache_bytes && empty < SHARDS {
            let next = self.next_shard.fetch_add(1, Ordering::Relaxed);
            if self.evict_one(&mut self.nth_shard(next)) {
                empty = 0;
            } else {
                empty += 1;
            }
        }
    }

    fn evict_one(&self, shard: &mut Shard) -> bool {
        for _ in 0..shard.queue.len() * 2 {
            let Some(id) = shard.queue.pop_front() else {
                return false;
            };
            match shard.entries.get(&id) {
                Some(Entry::Clean(node)) if node.take_used() => shard.queue.push_back(id),
                Some(Entry::Clean(node)) => {
                    self.clean_bytes.fetch_sub(node.memory_bytes(), Ordering::Relaxed);
                    shard.entries.remove(&id);
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    pub(crate) fn insert_dirty(&self, number: u64, node: Arc<Node>) {
        self.dirty_bytes.fetch_add(node.memory_bytes(), Ordering::Relaxed);
        let id = PageId::memory(number);
        self.shard(id).entries.insert(id, Entry::Dirty(node));
    }

    /// Forgets a page that nothing names any more.
    pub(crate) fn remove(&self, id: PageId) {
        match self.shard(id).entries.remove(&id) {
            Some(Entry::Clean(node)) => {
                self.clean_bytes.fetch_sub(node.memory_bytes(), Ordering::Relaxed);
            }
            Some(Entry::Dirty(node)) => {
                self.dirty_bytes.fetch_sub(node.memory_bytes(), Ordering::Relaxed);
            }
            Some(Entry::Redirected(_)) | None => {}
        }
    }

    /// A checkpoint wrote page `number` to `reference`, and a snapshot may still ask for it by number.
    pub(crate) fn redirect(&self, number: u64, reference: BlockRef) {
        let id = PageId::memory(number);
        let old = self.shard(id).entries.insert(id, Entry::Redirected(reference));
        if let Some(Entry::Dirty(node)) = old {
            self.dirty_bytes.fetch_sub(node.memory_bytes(), Ordering::Relaxed);
        }
    }

    /// Changes dirty page `number` where it is. Only for a writer that knows that nobody sees the page (see `transaction::single`).
    pub(crate) fn change_dirty(&self, number: u64, change: impl FnOnce(&mut Node)) {
        let id = PageId::memory(number);
        if let Some(Entry::Dirty(node)) = self.shard(id).entries.get_mut(&id) {
            change(Arc::make_mut(node));
        }
    }

    /// Page `number` if it is dirty and in memory.
    pub(crate) fn dirty_page(&self, number: u64) -> Option<Arc<Node>> {
        let id = PageId::memory(number);
        match self.shard(id).entries.get(&id) {
            Some(Entry::Dirty(node)) => Some(Arc::clone(node)),
            _ => None,
        }
    }
}
