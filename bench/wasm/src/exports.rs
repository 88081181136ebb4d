//! Functions that Node calls. They take numbers only, so that the module needs no glue.

#![allow(
    unsafe_code,
    reason = "names that are exported could clash, and these are the module's only ones"
)]

use std::cell::RefCell;

use crate::Bench;

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// Replaces the database with a new one for `count` records; 0 just drops it.
#[unsafe(no_mangle)]
extern "C" fn prepare(count: usize) {
    // Drops the old one first: the native program would not hold both in memory either.
    BENCH.set(None);
    if count > 0 {
        BENCH.set(Some(Bench::new(count).expect("memory can be written")));
    }
}

/// Returns the pages that had to be read since the database was created.
#[unsafe(no_mangle)]
extern "C" fn misses() -> usize {
    BENCH.with_borrow(|bench| bench.as_ref().map_or(0, |bench| bench.misses() as usize))
}

/// Runs an operation; returns how many times it ran.
#[unsafe(no_mangle)]
extern "C" fn run(operation: usize) -> usize {
    BENCH.with_borrow(|bench| {
        let bench = bench.as_ref().expect("prepared");
        bench.run(operation).expect("memory can be written")
    })
}
