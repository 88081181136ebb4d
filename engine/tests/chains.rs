//! Proves that a database survives one death after the other. A chain has 3 to 20 lives, each of which
//! continues from what the one before left, with its own options, and ends at any operation: with the
//! process, with a power cut, or closed. Between commits of all kinds it merges in slices and rounds,
//! gives merges up, compacts, re-encrypts, builds indexes, stages values, jumps in time, purges, and
//! makes backups. What opens must be a state that a model allows, verify, and count what it shows; and
//! the shadow of the storage checks every write on the way.

#![allow(clippy::print_stdout, reason = "what was tested is a result")]

#[path = "chains/life.rs"]
mod life;
#[path = "chains/model.rs"]
mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use life::{Counts, run_chain};

/// Chains of the default run; their seeds count from 1.
const CHAINS: u64 = 100;

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("it is a number"))
}

/// Runs a chain; returns its failure.
fn attempt(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let caught = catch_unwind(AssertUnwindSafe(|| run_chain(seed, counts)));
    caught.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!(
            "chain {seed}, {}: {}\nto repeat it: MANGROVE_CHAINS_SEED={seed} MANGROVE_CHAINS_IMAGES=1 cargo test -p mangrove-engine \
             --test chains -- --ignored soak --nocapture",
            life::last_step(),
            text.unwrap_or_default()
        )
    })
}

#[test]
fn no_death_of_a_chain_loses_anything() {
    let mut counts = Counts::default();
    for seed in 1..=CHAINS {
        attempt(seed, &mut counts).unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{counts:#?}");
    counts.assert_frequent();
}

/// Runs chains on all processors until `MANGROVE_CHAINS_IMAGES` images are checked, from the seed
/// `MANGROVE_CHAINS_SEED` on. With `MANGROVE_CHAINS_KEEP_GOING` a failure does not stop it.
#[test]
#[ignore = "takes hours"]
fn soak() {
    let wanted = number("MANGROVE_CHAINS_IMAGES", 1_000_000);
    let next = AtomicU64::new(number("MANGROVE_CHAINS_SEED", 10_000));
    let keeps_going = std::env::var("MANGROVE_CHAINS_KEEP_GOING").is_ok();
    let (images, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut counts = Counts::default();
        while images.load(Ordering::Relaxed) < wanted && (keeps_going || failures.load(Ordering::Relaxed) == 0) {
            let before = counts.images;
            if let Err(failure) = attempt(next.fetch_add(1, Ordering::Relaxed), &mut counts) {
                println!("FAILED after {} images: {failure}", images.load(Ordering::Relaxed));
                failures.fetch_add(1, Ordering::Relaxed);
            }
            images.fetch_add((counts.images - before).max(1), Ordering::Relaxed);
        }
        counts
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if wanted == 1 { 1 } else { processors };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            println!("{:#?}", worker.join().expect("failures are caught"));
        }
    });
    assert_eq!(failures.into_inner(), 0, "chains failed");
}
