//! Shortcuts from a published inner node to those of its children that are in memory, past the page table and its locks.
//!
//! They hold nothing: a page that the table evicts is gone for them too, and is found through the table again. A published page
//! never changes (invariant I3), so a shortcut cannot go wrong; a copy begins without any. WebAssembly does without: with a single
//! thread the table has no locks, and the module has to be small.

#[cfg(not(target_family = "wasm"))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(target_family = "wasm"))]
use std::sync::{Arc, OnceLock, Weak};

use super::Node;

/// A node that few descents pass before the next commit replaces it is not worth the memory.
#[cfg(not(target_family = "wasm"))]
const DESCENTS_BEFORE: u32 = 16;

#[cfg(not(target_family = "wasm"))]
type Slots = Box<[OnceLock<Weak<Node>>]>;

/// What descents and the page table note about a node. None of it is stored.
#[derive(Default)]
pub(super) struct Links {
    #[cfg(not(target_family = "wasm"))]
    slots: OnceLock<Slots>,
    #[cfg(not(target_family = "wasm"))]
    descents: AtomicU32,
    used: AtomicBool,
}

impl Clone for Links {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(not(target_family = "wasm"))]
impl Node {
    /// Child `index`, if a descent went there before and it is still in memory.
    #[inline]
    pub(crate) fn linked(&self, index: usize) -> Option<Arc<Node>> {
        let child = self.links.slots.get()?.get(index)?.get()?.upgrade()?;
        child.mark_used();
        Some(child)
    }

    /// Takes note of where child `index` is. Only for published nodes.
    pub(crate) fn link(&self, index: usize, child: &Arc<Node>) {
        let links = &self.links;
        let slots = match links.slots.get() {
            Some(slots) => slots,
            None => {
                let descents = links.descents.load(Ordering::Relaxed);
                if descents < DESCENTS_BEFORE {
                    links.descents.store(descents + 1, Ordering::Relaxed);
                    return;
                }
                links
                    .slots
                    .get_or_init(|| (0..self.len()).map(|_| OnceLock::new()).collect())
            }
        };
        if let Some(slot) = slots.get(index) {
            slot.get_or_init(|| Arc::downgrade(child));
        }
    }
}

impl Node {
    /// Gives the page a second chance at the next eviction.
    #[inline]
    pub(crate) fn mark_used(&self) {
        // Most often it is set already, and a store would take the cache line from other threads.
        if !self.links.used.load(Ordering::Relaxed) {
            self.links.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the page was used since this was last asked.
    pub(crate) fn take_used(&self) -> bool {
        self.links.used.swap(false, Ordering::Relaxed)
    }
}
