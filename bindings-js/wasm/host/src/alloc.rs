//! Grows memory in large steps.
//!
//! The allocator asks for 64 KiB at a time, and each growth costs far more than it brings. So after
//! a growth, a large block is allocated and freed at once: the allocator keeps it and serves later
//! requests from it.

#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

const STEP_BYTES: usize = 8 << 20;

struct Stepwise {
    /// Size of the memory in pages when last checked.
    pages: AtomicUsize,
}

#[global_allocator]
static ALLOCATOR: Stepwise = Stepwise {
    pages: AtomicUsize::new(0),
};

impl Stepwise {
    fn after_allocation(&self) {
        let pages = core::arch::wasm32::memory_size(0);
        if pages == self.pages.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(layout) = Layout::from_size_align(STEP_BYTES, 16) {
            // SAFETY: the layout is not empty, and the block is freed with the layout that
            // allocated it.
            unsafe {
                let block = System.alloc(layout);
                if !block.is_null() {
                    System.dealloc(block, layout);
                }
            }
        }
        self.pages.store(core::arch::wasm32::memory_size(0), Ordering::Relaxed);
    }
}

// SAFETY: each call goes to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Stepwise {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.alloc(layout) };
        self.after_allocation();
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        self.after_allocation();
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        let block = unsafe { System.realloc(block, layout, new_size) };
        self.after_allocation();
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(block, layout) }
    }
}
