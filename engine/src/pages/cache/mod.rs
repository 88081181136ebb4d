//! The page table: a cache of pages, bounded in bytes.
//!
//! A cached page never changes (invariant I3); a writer creates new ones. Eviction is second
//! chance, in insertion order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};

use rustc_hash::FxHashMap;

use counter::Counter;

use crate::block::{BlockFile, BlockRef, Kind, PageId};
use crate::error::Result;
use crate::locks::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::locks::{Mutex, MutexGuard};
use crate::node::{Limits, Node};

mod counter;

const SHARDS: usize = if cfg!(target_family = "wasm") { 1 } else { 16 };

/// A parent's description of the node it refers to.
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
    /// Expects a root with `count` records: it covers all keys and may be on any level.
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

/// Whether to cache a page that has to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Cache it.
    Point,
    /// Cache a leaf only if it fits: a scan must not empty the cache.
    Scan,
}

fn shard_of(id: PageId) -> usize {
    let mixed = id.word().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    mixed as usize % SHARDS
}

#[derive(Default)]
struct Shard {
    entries: FxHashMap<PageId, Arc<Node>>,
    queue: VecDeque<PageId>,
}

impl Shard {
    /// Appends a page to the queue. Pages removed other than by eviction leave stale entries, which
    /// are dropped once they outnumber the pages.
    fn enqueue(&mut self, id: PageId) {
        if self.queue.len() > 2 * self.entries.len() + 64 {
            // A map, because the extent allocator already instantiates this type.
            let mut seen = BTreeMap::new();
            let entries = &self.entries;
            self.queue
                .retain(|id| entries.contains_key(id) && seen.insert(id.word(), 0_u64).is_none());
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
    /// Bytes of the memtables and the running transaction.
    reserved_bytes: AtomicUsize,
    block_number: AtomicU32,
    /// Shard at which the next eviction starts.
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
            reserved_bytes: AtomicUsize::new(0),
            block_number: AtomicU32::new(1),
            next_shard: AtomicUsize::new(0),
            hits: Counter::new(),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn clean_bytes(&self) -> usize {
        self.clean_bytes.load(Ordering::Relaxed)
    }

    fn used_bytes(&self) -> usize {
        self.clean_bytes() + self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Reserves memory for memtables and the running transaction by evicting clean pages.
    pub(crate) fn reserve(&self, bytes: usize) {
        let before = self.reserved_bytes.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.evict();
        }
    }

    /// Returns the next number in the order of a generation's blocks. If salvage finds two blocks
    /// that cover a key, the higher number counts.
    pub(crate) fn next_block_number(&self) -> [u8; 4] {
        self.block_number.fetch_add(1, Ordering::Relaxed).to_le_bytes()
    }

    fn shard(&self, id: PageId) -> MutexGuard<'_, Shard> {
        self.nth_shard(shard_of(id))
    }

    fn nth_shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        // A panic elsewhere leaves the maps consistent: every change below is a single insertion or
        // removal.
        self.shards[number % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the page if it is in memory, otherwise the reference to its block.
    pub(crate) fn lookup(&self, reference: &BlockRef) -> std::result::Result<Arc<Node>, BlockRef> {
        let id = reference.page_id();
        match self.shard(id).entries.get(&id) {
            Some(node) => {
                node.mark_used();
                self.hits.add_one();
                Ok(Arc::clone(node))
            }
            None => Err(*reference),
        }
    }

    /// Returns child `index` of a published node if it is linked and in memory.
    #[cfg(not(target_family = "wasm"))]
    #[inline]
    pub(crate) fn linked(&self, parent: &Node, index: usize) -> Option<Arc<Node>> {
        let node = parent.linked(index)?;
        self.hits.add_one();
        Some(node)
    }

    /// Reads a page that [`lookup`](Self::lookup) did not find. Checks it against what its parent
    /// states.
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
        // I6: a node covers exactly the keys that its parent states, one level below it.
        if node.lower_fence() != expected.lower || node.upper_fence() != expected.upper {
            return Err(damaged("a node does not cover the keys its parent says"));
        }
        if expected.level.is_some_and(|level| level != node.level()) {
            return Err(damaged("a node is not on the level below its parent"));
        }
        // I12: these counts lead from a position down the tree.
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
        match shard.entries.insert(id, node) {
            Some(old) => {
                self.clean_bytes.fetch_sub(old.memory_bytes(), Ordering::Relaxed);
            }
            None => shard.enqueue(id),
        }
        drop(shard);
        self.evict();
    }

    /// Caches a page that was just written: an inner node always, a leaf only if it fits.
    pub(crate) fn insert_if_space(&self, unit: u64, node: Node) {
        if !node.is_leaf() || self.used_bytes() + node.memory_bytes() <= self.cache_bytes {
            self.insert_clean(unit, Arc::new(node));
        }
    }

    /// Evicts by second chance, taking the shards in turn so that all lose pages evenly.
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
                Some(node) if node.take_used() => shard.queue.push_back(id),
                Some(node) => {
                    self.clean_bytes.fetch_sub(node.memory_bytes(), Ordering::Relaxed);
                    if let Some(node) = shard.entries.remove(&id).and_then(Arc::into_inner) {
                        self.blocks.reuse(node.into_bytes());
                    }
                    return true;
                }
                None => {}
            }
        }
        false
    }

    /// Drops a page that nothing refers to any more.
    pub(crate) fn remove(&self, id: PageId) {
        if let Some(node) = self.shard(id).entries.remove(&id) {
            self.clean_bytes.fetch_sub(node.memory_bytes(), Ordering::Relaxed);
        }
    }
}
