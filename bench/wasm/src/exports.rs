//! What Node calls: numbers only, so that the module needs no glue.

#![allow(
    unsafe_code,
    reason = "names that are exported could clash, and these are the module's only ones"
)]

use std::cell::RefCell;

use crate::Bench;

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// Replaces the database by a new one for so many records; 0 just drops it.
#[unsafe(no_mangle)]
extern "C" fn prepare(count: usize) {
    // The old one first: both would not be in memory in the native program either.
    BENCH.set(None);
    if count > 0 {
        BENCH.set(Some(Bench::new(count).expect("memory can be written")));
    }
}

/// Pages that had to be read since the database is there.
#[unsafe(no_mangle)]
extern "C" fn misses() -> usize {
    BENCH.with_borrow(|bench| bench.as_ref().map_or(0, |bench| bench.misses() as usize))
}

/// Runs an operation; returns how many times it was done.
#[unsafe(no_mangle)]
extern "C" fn run(operation: usize) -> usize {
    BENCH.with_borrow(|bench| {
        let bench = bench.as_ref().expect("prepared");
        bench.run(operation).expect("memory can be written")
    })
}
