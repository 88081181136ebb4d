//! A counter without contention between threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Each thread has its own stripe until there are more threads than stripes.
const STRIPES: usize = if cfg!(target_family = "wasm") { 1 } else { 32 };

/// Fills its cache line, and the adjacent one that the processor prefetches with it.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// Counts events. Threads that share a stripe may lose counts: an atomic addition would cost as
/// much as the counted event.
pub(crate) struct Counter([Stripe; STRIPES]);

impl Counter {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Stripe::default()))
    }

    #[inline]
    pub(super) fn add_one(&self) {
        let stripe = &self.0[stripe() % STRIPES].0;
        stripe.store(stripe.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(target_family = "wasm")]
fn stripe() -> usize {
    0
}

#[cfg(not(target_family = "wasm"))]
#[inline]
fn stripe() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;

    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}
