//! The native side: lists the operations, then takes commands on standard input, one per line. It
//! answers each with the number of runs, the nanoseconds of processor time they took, and the pages
//! read so far.
#![allow(clippy::print_stdout, reason = "it answers a program")]

use std::fs;
use std::io::stdin;

use mangrove_bench_wasm::{Bench, names};

/// Returns the nanoseconds that this thread has run.
fn processor_time() -> u64 {
    // Without the yield the kernel reports the figure of its last tick.
    std::thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let time = text.split_whitespace().next().and_then(|time| time.parse().ok());
    time.expect("Linux tells how long a thread has run")
}

fn main() {
    println!("{}", names().join(";"));
    let mut bench = None;
    for line in stdin().lines() {
        let line = line.expect("the other side writes text");
        let (command, number) = line.split_once(' ').expect("a command has a number");
        let number = number.parse().expect("a command has a number");
        if command == "prepare" {
            drop(bench.take());
            bench = (number > 0).then(|| Bench::new(number).expect("memory can be written"));
            println!("0 0 0");
            continue;
        }
        let bench = bench.as_ref().expect("prepared");
        let start = processor_time();
        let count = bench.run(number).expect("memory can be written");
        let nanoseconds = processor_time() - start;
        println!("{count} {nanoseconds} {}", bench.misses());
    }
}
