//! The ordered indexes in memory against the standard library's B-tree: time per operation and
//! memory per entry.
//!
//! Each index runs each set of keys in a process of its own. The indexes take turns over several
//! rounds; the table shows medians.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it reports to a person")]
#![allow(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::ops::Bound;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use fastrand::Rng;
use mangrove_engine::Direction;
use mangrove_memory::CritBit;
use mangrove_memory::index::{BTree, OrderedIndex};

#[derive(Parser)]
#[command(about = "Ordered indexes in memory")]
struct Arguments {
    /// Entries of the largest index.
    #[arg(long, default_value_t = 1_000_000)]
    entries: usize,
    /// How often every index runs; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Runs one index in this process and prints its figures.
    #[arg(long, hide = true)]
    index: Option<String>,
    #[arg(long, hide = true, default_value_t = 100)]
    size: usize,
    #[arg(long, hide = true, default_value_t = 16)]
    key: usize,
}

const NAMES: [&str; 3] = ["BTree", "CritBit", "std"];

const FIGURES: [&str; 9] = [
    "insert, random",
    "insert, ascending",
    "get",
    "seek",
    "seek + 10 entries",
    "iterate",
    "clone + insert",
    "remove",
    "memory per entry",
];

/// The operations of both kinds of map.
trait Subject: Default + Clone {
    fn insert(&mut self, key: &[u8], value: u64);
    fn get(&self, key: &[u8]) -> Option<u64>;
    fn remove(&mut self, key: &[u8]) -> Option<u64>;
    fn seek(&self, key: &[u8]) -> Option<u64>;
    fn sum_from(&self, key: &[u8], limit: usize) -> u64;
}

/// An index of this engine.
#[derive(Clone, Default)]
struct Ours<I>(I);

impl<I: OrderedIndex<u64>> Subject for Ours<I> {
    fn insert(&mut self, key: &[u8], value: u64) {
        self.0.insert(key, value);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.get(key).copied()
    }

    fn remove(&mut self, key: &[u8]) -> Option<u64> {
        self.0.remove(key)
    }

    fn seek(&self, key: &[u8]) -> Option<u64> {
        let found = self.0.seek(Bound::Included(key), Direction::Forward);
        found.map(|(_, value)| *value)
    }

    fn sum_from(&self, key: &[u8], limit: usize) -> u64 {
        let range = self.0.range(Bound::Included(key), Bound::Unbounded, Direction::Forward);
        range.take(limit).map(|(key, value)| value + key.len() as u64).sum()
    }
}

impl Subject for BTreeMap<Vec<u8>, u64> {
    fn insert(&mut self, key: &[u8], value: u64) {
        self.insert(key.to_vec(), value);
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        self.get(key).copied()
    }

    fn remove(&mut self, key: &[u8]) -> Option<u64> {
        self.remove(key)
    }

    fn seek(&self, key: &[u8]) -> Option<u64> {
        let mut range = self.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        range.next().map(|(_, value)| *value)
    }

    fn sum_from(&self, key: &[u8], limit: usize) -> u64 {
        let range = self.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        range.take(limit).map(|(key, value)| value + key.len() as u64).sum()
    }
}

fn main() {
    let arguments = Arguments::parse();
    if let Some(name) = &arguments.index {
        let figures = match name.as_str() {
            "BTree" => measure::<Ours<BTree<u64>>>(&arguments),
            "CritBit" => measure::<Ours<CritBit<u64>>>(&arguments),
            _ => measure::<BTreeMap<Vec<u8>, u64>>(&arguments),
        };
        let figures: Vec<String> = figures.iter().map(ToString::to_string).collect();
        println!("{}", figures.join(" "));
        return;
    }
    println!("| entries × key | index | {} |", FIGURES.join(" | "));
    println!("|---|---|{}", "--:|".repeat(FIGURES.len()));
    for (size, key) in [100, 10_000, arguments.entries]
        .into_iter()
        .flat_map(|size| [(size, 16), (size, 40)])
    {
        let mut runs = vec![Vec::new(); NAMES.len()];
        for _ in 0..arguments.rounds {
            for (name, runs) in NAMES.iter().zip(&mut runs) {
                runs.push(run_child(name, size, key, &arguments));
            }
        }
        for (name, runs) in NAMES.iter().zip(&runs) {
            let cells: Vec<String> = (0..FIGURES.len()).map(|figure| cell(runs, figure)).collect();
            println!("| {size} × {key} B | {name} | {} |", cells.join(" | "));
        }
    }
}

fn cell(runs: &[Vec<f64>], figure: usize) -> String {
    let mut values: Vec<f64> = runs.iter().map(|run| run[figure]).collect();
    values.sort_by(f64::total_cmp);
    let value = values[values.len() / 2];
    match value {
        _ if FIGURES[figure].starts_with("memory") => format!("{value:.0} B"),
        10_000.0.. => format!("{:.0} µs", value / 1000.0),
        ..10.0 => format!("{value:.1} ns"),
        _ => format!("{value:.0} ns"),
    }
}

fn run_child(name: &str, size: usize, key: usize, arguments: &Arguments) -> Vec<f64> {
    let output = Command::new(std::env::current_exe().expect("the program has a path"))
        .args(["--index", name, "--size", &size.to_string(), "--key", &key.to_string()])
        .args(["--entries", &arguments.entries.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("the program can start itself");
    assert!(output.status.success(), "{name} failed");
    let text = String::from_utf8(output.stdout).expect("figures are text");
    text.split_whitespace()
        .map(|figure| figure.parse().expect("a figure"))
        .collect()
}

/// Keys stored side by side, so that reading one costs as little as possible.
struct Keys {
    bytes: Vec<u8>,
    len: usize,
}

impl Keys {
    fn random(count: usize, len: usize, rng: &mut Rng) -> Self {
        let mut bytes = vec![0; count * len];
        rng.fill(&mut bytes);
        Self { bytes, len }
    }

    /// Returns keys that end in ascending numbers after a common prefix.
    fn ascending(count: usize, len: usize) -> Self {
        let keys = (0..count).flat_map(|number| {
            let mut key = vec![b'k'; len];
            key[len - 8..].copy_from_slice(&(number as u64).to_be_bytes());
            key
        });
        Self {
            bytes: keys.collect(),
            len,
        }
    }

    fn get(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.len..][..self.len]
    }
}

fn resident_bytes() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_usize) * 4096
}

/// Returns the nanoseconds that this thread has run, without waits for the processor. The figure
/// lags by a few milliseconds.
fn processor_time() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let time = text.split_whitespace().next().and_then(|time| time.parse().ok());
    time.expect("Linux tells how long a thread has run")
}

/// Returns nanoseconds per operation.
fn timed(operations: usize, mut work: impl FnMut()) -> f64 {
    let start = processor_time();
    work();
    (processor_time() - start) / operations as f64
}

/// Measures indexes of one size. There are enough small indexes to hold as many entries as the
/// largest; operations are spread over all of them.
fn measure<S: Subject>(arguments: &Arguments) -> Vec<f64> {
    let size = arguments.size;
    let copies = arguments.entries.div_ceil(size);
    let total = size * copies;
    let mut rng = Rng::with_seed(7);
    let keys = Keys::random(total, arguments.key, &mut rng);
    let others = Keys::random(total, arguments.key, &mut rng);
    let mut order: Vec<usize> = (0..total).collect();
    // Shuffles within an index only: the processor's cache holds the index in use.
    for chunk in order.chunks_mut(size) {
        rng.shuffle(chunk);
    }

    let before = resident_bytes();
    let mut indexes = vec![S::default(); copies];
    let insert = timed(total, || fill(&mut indexes, &keys, size));
    let memory = resident_bytes().saturating_sub(before) as f64 / total as f64;
    let get = timed(total, || {
        for entry in &order {
            black_box(indexes[entry / size].get(keys.get(*entry)));
        }
    });
    let seek = timed(total, || {
        for entry in 0..total {
            black_box(indexes[entry / size].seek(others.get(entry)));
        }
    });
    let scans = total.div_ceil(4);
    let seek_scan = timed(scans, || {
        for entry in 0..scans {
            black_box(indexes[entry / size].sum_from(others.get(entry), 10));
        }
    });
    let iterate = timed(total, || {
        for index in &indexes {
            black_box(index.sum_from(b"", usize::MAX));
        }
    });
    let (start, clock) = (processor_time(), Instant::now());
    let mut clones = 0;
    // A full copy of a large map takes long.
    while clones < total && clock.elapsed() < Duration::from_millis(400) {
        let index = &mut indexes[clones * 7919 % copies];
        let snapshot = index.clone();
        index.insert(others.get(clones), 0);
        black_box(snapshot);
        clones += 1;
    }
    let clone_insert = (processor_time() - start) / clones as f64;
    let remove = timed(total, || {
        for entry in &order {
            black_box(indexes[entry / size].remove(keys.get(*entry)));
        }
    });
    drop(indexes);
    let keys = Keys::ascending(total, arguments.key);
    let mut indexes = vec![S::default(); copies];
    let ascending = timed(total, || fill(&mut indexes, &keys, size));
    vec![
        insert,
        ascending,
        get,
        seek,
        seek_scan,
        iterate,
        clone_insert,
        remove,
        memory,
    ]
}

fn fill<S: Subject>(indexes: &mut [S], keys: &Keys, size: usize) {
    for (copy, index) in indexes.iter_mut().enumerate() {
        for entry in 0..size {
            let entry = copy * size + entry;
            index.insert(keys.get(entry), entry as u64);
        }
    }
}
