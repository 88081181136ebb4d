//! Shortcuts from a published inner node to its children in memory, past the page table and its
//! locks.
//!
//! A shortcut is a weak reference: once the table evicts a page, the shortcut is dead too, and the
//! page is found through the table again. A published page never changes (invariant I3), so a
//! shortcut is never wrong; a copy of a node starts without shortcuts. WebAssembly builds have
//! none: with a single thread the table has no locks, and the module has to be small.

#[cfg(not(target_family = "wasm"))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(target_family = "wasm"))]
use std::sync::{Arc, OnceLock, Weak};

use super::Node;

/// Descents through a node before it gets shortcuts: a node that the next commit soon replaces is
/// not worth the memory.
#[cfg(not(target_family = "wasm"))]
const DESCENTS_BEFORE: u32 = 16;

#[cfg(not(target_family = "wasm"))]
type Slots = Box<[OnceLock<Weak<Node>>]>;

/// Notes of descents and the page table about a node. None of this is stored.
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
    /// Child `index`, if an earlier descent linked it and it is still in memory.
    #[inline]
    pub(crate) fn linked(&self, index: usize) -> Option<Arc<Node>> {
        let child = self.links.slots.get()?.get(index)?.get()?.upgrade()?;
        child.mark_used();
        Some(child)
    }

    /// Links child `index`. Only for published nodes.
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
        // Usually the flag is already set, and a store would take the cache line from other
        // threads.
        if !self.links.used.load(Ordering::Relaxed) {
            self.links.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the page was used since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.links.used.swap(false, Ordering::Relaxed)
    }
}
